//! Atomic and durable replacement of small files.

#![expect(clippy::disallowed_methods, reason = "callers have a thread for it")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Replaces the file atomically and durably. Blocks on the file system.
///
/// # Panics
/// If the path has no folder.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let beside = beside(path);
    // A crash may have left this file, or another program may have made a symbolic link.
    removed(fs::remove_file(&beside))?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    sync_folder(path)
}

/// Returns the path of the temporary file of [`replace`].
pub(crate) fn beside(path: &Path) -> PathBuf {
    let mut beside = path.to_owned().into_os_string();
    beside.push(".new");
    beside.into()
}

/// Removes the file durably, if it exists. Blocks on the file system.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    if removed(fs::remove_file(path))? {
        sync_folder(path)?;
    }
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
