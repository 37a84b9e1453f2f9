//! Path, lock and permissions of the control socket.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, FlockOperation, Gid, accessat, chown, flock, statfs};
use rustix::io::Errno;

/// Returns the default path: in `$RUNTIME_DIRECTORY` (service manager), `/run/cairn` (root) or
/// `$XDG_RUNTIME_DIR/cairn`.
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

/// Reason why the socket cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens at the path.
    #[error(
        "another target{} listens on {path}: stop it, or give this one a path of its own, by \
         --control or [control] socket",
        of_process(*pid)
    )]
    InUse {
        path: PathBuf,
        /// Process ID written by the other target; `None` if this user cannot read the lock file.
        pid: Option<u32>,
    },
    /// The configured group does not exist.
    #[error("[control] group: the group \"{0}\" does not exist: create it, or name another")]
    NoGroup(String),
    /// The path exists and is not a socket.
    #[error("{0} exists and is not a socket: set another path for the control socket")]
    NoSocket(PathBuf),
    /// A system call failed.
    #[error(
        "cannot make the control socket {path}: {source}: make its folder writable for this \
         user, or give it another path, by --control or [control] socket"
    )]
    System { path: PathBuf, source: io::Error },
}

/// Listening socket; a drop removes its file.
#[derive(Debug)]
pub struct Bound {
    path: PathBuf,
    listener: UnixListener,
    _lock: File,
}

/// Checked path and group of a control socket.
#[derive(Debug)]
pub struct Plan {
    path: PathBuf,
    gid: Option<Gid>,
}

impl Plan {
    /// Checks that `path` permits a socket and that `group` exists. Creates nothing.
    pub fn new(path: &Path, group: Option<&str>) -> Result<Self, BindError> {
        let gid = group
            .map(|name| group_id(name).ok_or_else(|| BindError::NoGroup(name.to_owned())))
            .transpose()?;
        let system = |source| BindError::System {
            path: path.to_owned(),
            source,
        };
        // The longest path used by `bind` must fit into the 108 bytes of `sun_path` (unix(7)).
        SocketAddr::from_pathname(beside(path, ".new").join("socket")).map_err(system)?;
        check_folder(path).map_err(system)?;
        match std::fs::symlink_metadata(path) {
            Ok(there) if !is_socket(&there) => Err(BindError::NoSocket(path.to_owned())),
            _ => Ok(Self {
                path: path.to_owned(),
                gid,
            }),
        }
    }

    /// Checks that no other process listens at the path.
    pub fn check_free(&self) -> Result<(), BindError> {
        let Ok(file) = File::open(beside(&self.path, ".lock")) else {
            return Ok(());
        };
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => Err(in_use(&self.path)),
            _ => Ok(()),
        }
    }

    /// Creates the socket with mode 0660 and listens on it.
    pub fn bind(self) -> Result<Bound, BindError> {
        let Self { path, gid } = self;
        let system = |source: io::Error| BindError::System {
            path: path.clone(),
            source,
        };
        if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
            std::fs::DirBuilder::new()
                .mode(0o755)
                .recursive(true)
                .create(folder)
                .map_err(system)?;
        }
        let lock = lock(&path).map_err(|source| {
            if source.raw_os_error() == Some(Errno::WOULDBLOCK.raw_os_error()) {
                in_use(&path)
            } else {
                system(source)
            }
        })?;
        let listener = listen(&path, gid).map_err(system)?;
        listener.set_nonblocking(true).map_err(system)?;
        Ok(Bound {
            path,
            listener,
            _lock: lock,
        })
    }
}

fn in_use(path: &Path) -> BindError {
    let written = std::fs::read_to_string(beside(path, ".lock"));
    BindError::InUse {
        path: path.to_owned(),
        pid: written.ok().and_then(|pid| pid.trim().parse().ok()),
    }
}

fn of_process(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process ID {pid})"))
}

fn check_folder(path: &Path) -> io::Result<()> {
    /// Magic numbers of file systems without sockets (`linux/magic.h`).
    const MAGICS: [u64; 3] = [0x9fa0, 0x6265_6572, 0x6367_7270];
    let mut ancestors = path.ancestors().skip(1);
    let there = ancestors.find(|folder| folder.as_os_str().is_empty() || folder.exists());
    let there = there.filter(|folder| !folder.as_os_str().is_empty());
    let there = there.unwrap_or(Path::new("."));
    if !std::fs::metadata(there)?.is_dir() {
        return Err(Errno::NOTDIR.into());
    }
    let magic = statfs(there)?.f_type as u64;
    if MAGICS.contains(&magic) {
        return Err(Errno::OPNOTSUPP.into());
    }
    Ok(accessat(
        CWD,
        there,
        Access::WRITE_OK | Access::EXEC_OK,
        AtFlags::EACCESS,
    )?)
}

impl Bound {
    /// Creates the socket at `path` with mode 0660, and replaces the socket of an ended process.
    /// The socket appears at `path` only after its group and mode are set.
    pub fn bind(path: &Path, group: Option<&str>) -> Result<Self, BindError> {
        Plan::new(path, group)?.bind()
    }

    /// Returns the path at which clients connect.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a listener for [`serve`](crate::serve).
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Creates the lock file, locks it, and writes the process ID into it. Nothing removes the file,
/// because two processes could then lock different files.
fn lock(path: &Path) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
        .open(beside(path, ".lock"))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    // Only error messages need the process ID, so a full disk does not prevent the start.
    let _ = file
        .set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

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
        let error = Bound::bind(&path, None).unwrap_err().to_string();
        let own = format!("another target (process ID {})", std::process::id());
        assert!(error.starts_with(&own), "{error}");
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

    #[test]
    fn a_plan_finds_what_a_socket_would_miss_and_makes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let long = folder.path().join("a".repeat(100));
        for place in [
            Path::new("/proc/cairn/target.sock"),
            &folder.path().join("file/target.sock"),
            &long,
        ] {
            let planned = Plan::new(place, None);
            assert!(
                matches!(planned, Err(BindError::System { .. })),
                "{place:?}"
            );
        }
        let path = folder.path().join("deep/er/target.sock");
        Plan::new(&path, None).unwrap().check_free().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let bound = Bound::bind(&path, None).unwrap();
        let taken = Plan::new(&path, None).unwrap().check_free();
        assert!(matches!(taken, Err(BindError::InUse { .. })));
        drop(bound);
        Plan::new(&path, None).unwrap().check_free().unwrap();
    }
}
