//! Atomic and durable replacement of small files.

#![expect(clippy::disallowed_methods, reason = "callers have a thread for it")]

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

thread_local! {
    static STEPS_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Simulates a kill in the middle of a file change: after `steps` system calls of [`replace`] and
/// `remove`, this thread panics before the next one, until `None` is set.
pub fn interrupt_after(steps: Option<u32>) {
    STEPS_LEFT.set(steps);
}

fn step() {
    if let Some(left) = STEPS_LEFT.get() {
        let left = left.checked_sub(1);
        STEPS_LEFT.set(left.or(Some(0)));
        if left.is_none() {
            // No panic hook runs, because nothing is wrong.
            std::panic::resume_unwind(Box::new(INTERRUPTED));
        }
    }
}

pub const INTERRUPTED: &str = "the file change is interrupted";

/// Replaces the file atomically and durably. Blocks on the file system.
///
/// # Panics
/// If the path has no folder.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let beside = beside(path);
    // A crash may have left this file, or another program may have made a symbolic link.
    step();
    removed(fs::remove_file(&beside))?;
    step();
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&beside)?;
    step();
    file.write_all(content)?;
    step();
    file.sync_all()?;
    step();
    fs::rename(&beside, path)?;
    step();
    sync_folder(path)?;
    step();
    Ok(())
}

pub(crate) fn beside(path: &Path) -> PathBuf {
    let mut beside = path.to_owned().into_os_string();
    beside.push(".new");
    beside.into()
}

/// Creates the folder durably, if it does not exist. Blocks on the file system.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    step();
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
        made => made?,
    }
    step();
    sync_folder(path)
}

/// Removes the file durably, if it exists. Blocks on the file system.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    step();
    if removed(fs::remove_file(path))? {
        step();
        sync_folder(path)?;
    }
    step();
    Ok(())
}

fn removed(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        other => other.map(|()| true),
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().expect("a file is in a folder");
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_beside_the_file_is_replaced_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("file"), folder.path().join("other"));
        fs::write(&other, "of others").unwrap();
        std::os::unix::fs::symlink(&other, folder.path().join("file.new")).unwrap();
        replace(&path, b"ours", 0o600).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"ours");
        assert_eq!(fs::read(&other).unwrap(), b"of others");
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
