use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::Namespace;

pub(crate) const DIRECTORY_PREFIX: &str = "dir:";

/// Directory whose files are exported as namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Absolute path, unique among pools.
    pub folder: PathBuf,
    /// NSIDs reserved for the files.
    pub nsids: RangeInclusive<u32>,
    /// Settings of each namespace; NSID and backing are placeholders.
    pub like: Namespace,
    /// Problem found by the last scan; `None` before a scan.
    pub problem: Option<String>,
    /// Files left out by the last scan; empty before a scan.
    pub left_out: Vec<LeftOut>,
}

/// File of a [`Pool`] that is not exported.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftOut {
    /// File name with unprintable characters escaped.
    pub name: String,
    pub reason: String,
}

/// Identity of a file on this machine, unchanged by renaming.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PooledFile {
    /// Identity that the opened file must have.
    pub id: FileId,
    /// Size in bytes at the last scan.
    pub bytes: u64,
}
