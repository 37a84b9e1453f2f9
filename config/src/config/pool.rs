//! Pool directories.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::Namespace;

/// Prefix of an export that is a [`Pool`].
pub(crate) const DIRECTORY_PREFIX: &str = "dir:";

/// Directory whose files are namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Absolute path, unique among pools.
    pub folder: PathBuf,
    /// NSIDs reserved for the files of the pool.
    pub nsids: RangeInclusive<u32>,
    /// Settings of its namespaces, apart from NSID and backing.
    pub like: Namespace,
    /// Reason why files are missing, set by a scan and not by the checks.
    pub problem: Option<String>,
    /// Files that are not exported, set by a scan and not by the checks.
    pub left_out: Vec<LeftOut>,
}

/// File of a [`Pool`] that is not exported.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftOut {
    /// File name, with unprintable characters escaped.
    pub name: String,
    /// Reason and remedy.
    pub reason: String,
}

/// Identity of a file on this machine, independent of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    /// Device number of the file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

/// File of a [`Pool`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PooledFile {
    /// Expected identity.
    pub id: FileId,
    /// Size at the last scan.
    pub bytes: u64,
}
