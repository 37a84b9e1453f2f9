//! Directories of files.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::Namespace;

/// How the export of a [`Pool`] begins.
pub(crate) const DIRECTORY_PREFIX: &str = "dir:";

/// A directory whose files are namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Its absolute path; no two pools have one.
    pub folder: PathBuf,
    /// The NSIDs for its files, which no other disk has.
    pub nsids: RangeInclusive<u32>,
    /// What each of its namespaces is like, but for NSID and backing.
    pub like: Namespace,
    /// Why it shows no files, or not all of them; the checks do not look.
    pub problem: Option<String>,
    /// Files that are no namespaces; the checks do not look.
    pub left_out: Vec<LeftOut>,
}

/// A file of a [`Pool`] that is no namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftOut {
    /// Its name, with escapes for what cannot be printed.
    pub name: String,
    /// Why, and what to do.
    pub reason: String,
}

/// Which file of a machine it is, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    /// The device of its file system.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
}

/// A file of a [`Pool`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PooledFile {
    /// Which it must be.
    pub id: FileId,
    /// Its size when it was last looked at.
    pub bytes: u64,
}
