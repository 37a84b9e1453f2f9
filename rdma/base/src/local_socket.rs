//! Listening Unix sockets.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Creates a socket with the given group and mode, and replaces a file at the path.
///
/// The socket appears at `path` only after its group and mode are set.
pub fn listen(path: &Path, gid: Option<u32>, mode: u32) -> io::Result<UnixListener> {
    let new = longest_path(path);
    let folder = beside(path, ".new");
    let _ = fs::remove_file(&new);
    let _ = fs::remove_dir(&folder);
    DirBuilder::new().mode(0o700).create(&folder)?;
    let listener = UnixListener::bind(&new)?;
    if gid.is_some() {
        chown(&new, None, gid)?;
    }
    fs::set_permissions(&new, Permissions::from_mode(mode))?;
    fs::rename(&new, path)?;
    let _ = fs::remove_dir(&folder);
    Ok(listener)
}

/// Returns the longest path that [`listen`] binds. Paths of sockets have at most 107 bytes (unix(7)).
#[must_use]
pub fn longest_path(path: &Path) -> PathBuf {
    beside(path, ".new").join("socket")
}

/// Returns the path with a suffix after its file name.
#[must_use]
pub fn beside(path: &Path, suffix: impl AsRef<OsStr>) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
