//! Which image is opened, and how.

use std::fmt;
use std::path::PathBuf;

/// Which image, and the user who opens it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Spec {
    /// Pool.
    pub pool: String,
    /// Namespace of the pool, if not the one without a name.
    pub namespace: Option<String>,
    /// Image.
    pub image: String,
    /// Snapshot of it: then it can only be read.
    pub snapshot: Option<String>,
    /// The cluster's configuration, if not in its usual place.
    pub conf: Option<PathBuf>,
    /// The user's name without `client.`; `admin` if none is given.
    pub user: Option<String>,
    /// The file with the user's key, if it is not where the configuration says.
    pub keyring: Option<PathBuf>,
    /// Options of the client, each with its value: none for which [`is_reserved`](crate::is_reserved) holds.
    pub options: Vec<(String, String)>,
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rbd:{}/", self.pool)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        write!(f, "{}", self.image)?;
        match &self.snapshot {
            Some(snapshot) => write!(f, "@{snapshot}"),
            None => Ok(()),
        }
    }
}

/// How an image is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// It is only read.
    pub read_only: bool,
    /// Others may write to it, too: its exclusive lock is not kept from them.
    pub shared: bool,
}

/// How an image is laid out over objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of an object.
    pub object_bytes: u64,
    /// Bytes of a stripe's unit: the object's where it has no stripes.
    pub stripe_bytes: u64,
    /// Objects that a stripe goes over.
    pub stripe_objects: u64,
}
