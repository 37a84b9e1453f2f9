//! Path, lock and permissions of the control socket.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use cairn_base::local_socket::{beside, listen, longest_path};
use cairn_base::shell::shell_word;
use rustix::fs::{Access, AtFlags, CWD, Gid, accessat, statfs};
use rustix::io::Errno;

use crate::lock::{PathLock, of_process};

/// Returns the default path: in `$RUNTIME_DIRECTORY` (service manager), `/run/cairn` (root) or
/// `$XDG_RUNTIME_DIR/cairn`.
#[must_use]
pub fn default_path() -> Option<PathBuf> {
    let folders = std::env::var_os("RUNTIME_DIRECTORY").unwrap_or_default();
    if let Some(folder) = std::env::split_paths(&folders).next()
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

#[derive(Debug, thiserror::Error)]
pub enum BindError {
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
    #[error("[control] group: the group \"{0}\" does not exist: create it, or name another")]
    NoGroup(String),
    #[error("{0} exists and is not a socket: set another path for the control socket")]
    NoSocket(PathBuf),
    #[error(
        "cannot make the control socket {}: its folder {} does not exist: correct the path (--control \
         or [control] socket), or make the folder: mkdir -p {}",
        path.display(), folder.display(), shell_word(&folder.to_string_lossy(), "DIR")
    )]
    NoFolder { path: PathBuf, folder: PathBuf },
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
    _lock: PathLock,
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
        SocketAddr::from_pathname(longest_path(path)).map_err(system)?;
        let missing = missing_folder(path);
        if let Some(folder) = missing.filter(|folder| !may_make(folder)) {
            return Err(BindError::NoFolder {
                path: path.to_owned(),
                folder: folder.to_owned(),
            });
        }
        check_folder(path).map_err(system)?;
        match std::fs::symlink_metadata(path) {
            Ok(there) if !is_socket(&there) => Err(BindError::NoSocket(path.to_owned())),
            _ => Ok(Self {
                path: path.to_owned(),
                gid,
            }),
        }
    }

    pub fn check_free(&self) -> Result<(), BindError> {
        match PathLock::is_taken(&beside(&self.path, ".lock")) {
            true => Err(in_use(&self.path)),
            false => Ok(()),
        }
    }

    pub fn bind(self) -> Result<Bound, BindError> {
        let Self { path, gid } = self;
        let system = |source: io::Error| BindError::System {
            path: path.clone(),
            source,
        };
        if let Some(folder) = missing_folder(&path) {
            let mut builder = std::fs::DirBuilder::new();
            builder.mode(0o755).create(folder).map_err(system)?;
        }
        let lock = PathLock::take(&beside(&path, ".lock")).map_err(|source| {
            match source.kind() == io::ErrorKind::WouldBlock {
                true => in_use(&path),
                false => system(source),
            }
        })?;
        let gid = gid.map(Gid::as_raw);
        let listener = listen(&path, gid, 0o660).map_err(system)?;
        listener.set_nonblocking(true).map_err(system)?;
        Ok(Bound {
            path,
            listener,
            _lock: lock,
        })
    }
}

fn in_use(path: &Path) -> BindError {
    BindError::InUse {
        path: path.to_owned(),
        pid: PathLock::owner(&beside(path, ".lock")),
    }
}

fn folder_of(path: &Path) -> Option<&Path> {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
}

fn missing_folder(path: &Path) -> Option<&Path> {
    let folder = folder_of(path)?;
    matches!(folder.try_exists(), Ok(false)).then_some(folder)
}

/// True for the folder of the usual path, if the folder above exists.
fn may_make(folder: &Path) -> bool {
    default_path().is_some_and(|usual| usual.parent() == Some(folder))
        && folder_of(folder).is_some_and(Path::exists)
}

fn check_folder(path: &Path) -> io::Result<()> {
    /// Magic numbers of file systems without sockets (`linux/magic.h`).
    const MAGICS: [u64; 3] = [0x9fa0, 0x6265_6572, 0x6367_7270];
    let there = match missing_folder(path) {
        Some(folder) => folder_of(folder),
        None => folder_of(path),
    };
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

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
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
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_path_has_one_owner_and_goes_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("target.sock");
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
            Path::new("/proc/target.sock"),
            &folder.path().join("file/target.sock"),
            &long,
        ] {
            let planned = Plan::new(place, None);
            assert!(
                matches!(planned, Err(BindError::System { .. })),
                "{place:?}"
            );
        }
        for place in ["deep/target.sock", "deep/er/target.sock"] {
            let place = folder.path().join(place);
            let planned = [
                Plan::new(&place, None).map(drop),
                Bound::bind(&place, None).map(drop),
            ];
            for planned in planned {
                let error = planned.unwrap_err();
                assert!(matches!(error, BindError::NoFolder { .. }), "{error}");
                let remedy = format!("mkdir -p {}", place.parent().unwrap().display());
                assert!(error.to_string().ends_with(&remedy), "{error}");
            }
        }
        let path = folder.path().join("target.sock");
        Plan::new(&path, None).unwrap().check_free().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let bound = Bound::bind(&path, None).unwrap();
        let taken = Plan::new(&path, None).unwrap().check_free();
        assert!(matches!(taken, Err(BindError::InUse { .. })));
        drop(bound);
        Plan::new(&path, None).unwrap().check_free().unwrap();
    }
}
