//! Small files that are replaced as a whole: after an error, and whenever the machine stops, a file
//! has its former content or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Gives the file this content; after this it is on the disk. Blocks as long as the file system
/// takes.
///
/// # Errors
/// Those of the system.
///
/// # Panics
/// If the path has no folder.
pub(crate) fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    // It becomes the other one once it is whole.
    let mut beside = path.to_owned().into_os_string();
    beside.push(".new");
    // Also a link that someone has put there.
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

/// Removes the file, if it is there; after this it is gone from the disk. Blocks likewise.
///
/// # Errors
/// Those of the system.
///
/// # Panics
/// If the path has no folder.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    if removed(fs::remove_file(path))? {
        sync_folder(path)?;
    }
    Ok(())
}

/// Whether there was anything to remove.
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
