//! Identification and access mode of an image.

use std::fmt;
use std::path::PathBuf;

/// Image, and Ceph user that opens it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Spec {
    /// Pool name.
    pub pool: String,
    /// Namespace in the pool; `None`: the default.
    pub namespace: Option<String>,
    /// Image name.
    pub image: String,
    /// Snapshot name, which makes the image read-only.
    pub snapshot: Option<String>,
    /// Cluster configuration; `None`: the default path.
    pub conf: Option<PathBuf>,
    /// User name without `client.`; `None`: `admin`.
    pub user: Option<String>,
    /// Keyring; `None`: as configured.
    pub keyring: Option<PathBuf>,
    /// Client options by name; none may be [reserved](crate::is_reserved).
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

/// Access mode of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Whether to open for reading only.
    pub read_only: bool,
    /// Whether to allow other writers, without the exclusive lock.
    pub shared: bool,
}

/// Layout of an image over objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Object size in bytes.
    pub object_bytes: u64,
    /// Stripe unit in bytes: the object size without striping.
    pub stripe_bytes: u64,
    /// Objects per stripe.
    pub stripe_objects: u64,
}
