//! Identification of an image, and its access mode.

use std::fmt;
use std::path::PathBuf;

/// Image to open, and the Ceph user that opens it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Spec {
    /// Pool name.
    pub pool: String,
    /// Namespace of the pool; `None` for the default one.
    pub namespace: Option<String>,
    /// Image name.
    pub image: String,
    /// Snapshot name. An image with a snapshot is read-only.
    pub snapshot: Option<String>,
    /// Path of the cluster's configuration; `None` for the default.
    pub conf: Option<PathBuf>,
    /// User name without `client.`; `None` for `admin`.
    pub user: Option<String>,
    /// Path of the user's keyring; `None` for that of the configuration.
    pub keyring: Option<PathBuf>,
    /// Client options as names and values. [`is_reserved`](crate::is_reserved) must be false for each name.
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
    /// Whether to allow other writers: the exclusive lock is then not acquired.
    pub shared: bool,
}

/// Layout of an image over objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Object size in bytes.
    pub object_bytes: u64,
    /// Stripe unit in bytes: the object size if the image is not striped.
    pub stripe_bytes: u64,
    /// Number of objects per stripe.
    pub stripe_objects: u64,
}
