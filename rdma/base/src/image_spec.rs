//! Parameters with which librbd opens a Ceph image.

use std::fmt;
use std::path::PathBuf;

/// Ceph client options that an image must not set, because the target or a configuration key sets
/// them.
const RESERVED: [&str; 9] = [
    "client_mount_timeout",
    "key",
    "keyfile",
    "keyring",
    "objecter_tick_interval",
    "rados_osd_op_timeout",
    "rbd_cache",
    "rbd_disable_zero_copy_writes",
    "rbd_non_blocking_aio",
];

/// True if an image must not set this client option.
#[must_use]
pub fn is_reserved(option: &str) -> bool {
    let name = option.trim().replace([' ', '-'], "_");
    RESERVED.contains(&name.as_str())
}

/// Ceph image, with the cluster, user and options for opening it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ImageSpec {
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
    /// Keyring; `None`: the keyring of the cluster configuration.
    pub keyring: Option<PathBuf>,
    /// Client options by name; none may be [reserved](is_reserved).
    pub options: Vec<(String, String)>,
}

impl fmt::Display for ImageSpec {
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
