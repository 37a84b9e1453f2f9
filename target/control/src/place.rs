//! The socket's place in the file system.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Gid, chown, flock};
use rustix::io::Errno;

/// Where the target listens, and its commands connect, unless a path is given: in the folder
/// that a service manager made for it ($RUNTIME_DIRECTORY), in /run for root, in the user's own
/// folder ($XDG_RUNTIME_DIR) otherwise.
#[must_use]
pub fn default_path() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("RUNTIME_DIRECTORY").map(PathBuf::from)
        && folder.is_absolute()
    {
        return Some(folder.join("target.sock"));
    }
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/run/cairn/target.sock"));
    }
    let own = std::env::var_os("XDG_RUNTIME_DIR")?;
    let own = PathBuf::from(own);
    own.is_absolute().then(|| own.join("cairn/target.sock"))
}

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process has it.
    #[error(
        "another target listens on {0}: give this one a path of its own, by --control or \
         [control] socket"
    )]
    InUse(PathBuf),
    /// There is no such group.
    #[error("[control] group: there is no group \"{0}\": create it, or name another")]
    NoGroup(String),
    /// Something that is not a socket.
    #[error("{0} is there and is no socket: remove it, or give the control socket another path")]
    NoSocket(PathBuf),
    /// The system refuses.
    #[error(
        "cannot make the control socket {path}: {source}: make its folder writable for this \
         user, or give it another path, by --control or [control] socket"
    )]
    System {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A socket that listens. Dropped, its file goes.
#[derive(Debug)]
pub struct Bound {
    path: PathBuf,
    listener: UnixListener,
    /// Locked while this process has the path.
    _lock: File,
}

impl Bound {
    /// Listens at `path`, with mode 0660. What a process that is gone has left there is
    /// replaced; a client sees the socket with its owner and mode, or not at all.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind(path: &Path, group: Option<&str>) -> Result<Self, BindError> {
        let system = |source: io::Error| BindError::System {
            path: path.to_owned(),
            source,
        };
        let gid = group
            .map(|name| group_id(name).ok_or_else(|| BindError::NoGroup(name.to_owned())))
            .transpose()?;
        if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
            std::fs::DirBuilder::new()
                .mode(0o755)
                .recursive(true)
                .create(folder)
                .map_err(system)?;
        }
        let lock = lock(path).map_err(|source| {
            if source.raw_os_error() == Some(Errno::WOULDBLOCK.raw_os_error()) {
                BindError::InUse(path.to_owned())
            } else {
                system(source)
            }
        })?;
        match std::fs::symlink_metadata(path) {
            Ok(there) if !is_socket(&there) => return Err(BindError::NoSocket(path.to_owned())),
            _ => {}
        }
        let listener = listen(path, gid).map_err(system)?;
        listener.set_nonblocking(true).map_err(system)?;
        Ok(Self {
            path: path.to_owned(),
            listener,
            _lock: lock,
        })
    }

    /// Where.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A listener for [`serve`](crate::serve).
    ///
    /// # Errors
    /// Too many files are open.
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A file beside the socket, which stays: without it, two processes could both find that the
/// socket's former owner is gone.
fn lock(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
        .open(beside(path, ".lock"))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Under another name until owner and mode are right.
fn listen(path: &Path, gid: Option<Gid>) -> io::Result<UnixListener> {
    let folder = beside(path, ".new");
    let _ = std::fs::remove_file(folder.join("socket"));
    let _ = std::fs::remove_dir(&folder);
    std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
    let new = folder.join("socket");
    let listener = UnixListener::bind(&new)?;
    if gid.is_some() {
        chown(&new, None, gid)?;
    }
    std::fs::set_permissions(&new, Permissions::from_mode(0o660))?;
    std::fs::rename(&new, path)?;
    let _ = std::fs::remove_dir(&folder);
    Ok(listener)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn is_socket(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    metadata.file_type().is_socket()
}

/// By number, or by name in /etc/group.
fn group_id(name: &str) -> Option<Gid> {
    if let Ok(number) = name.parse() {
        return Some(Gid::from_raw(number));
    }
    let groups = std::fs::read_to_string("/etc/group").ok()?;
    let mut groups = groups.lines().map(|line| line.split(':'));
    let number = groups
        .find_map(|mut fields| (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?);
    number.map(Gid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_path_has_one_owner_and_goes_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/target.sock");
        let bound = Bound::bind(&path, None).unwrap();
        UnixStream::connect(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        assert!(matches!(Bound::bind(&path, None), Err(BindError::InUse(_))));
        drop(bound);
        assert!(!path.exists());
    }

    #[test]
    fn what_a_killed_process_left_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("target.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let _bound = Bound::bind(&path, None).unwrap();
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn a_file_is_not_replaced_and_a_group_must_be_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        std::fs::write(&path, "data").unwrap();
        assert!(matches!(
            Bound::bind(&path, None),
            Err(BindError::NoSocket(_))
        ));
        let missing = Bound::bind(&folder.path().join("a.sock"), Some("no-such-group"));
        assert!(matches!(missing, Err(BindError::NoGroup(_))));
    }
}
