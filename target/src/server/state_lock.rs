//! Lock on the state directory, whose files one target at a time may change.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use cairn_control::{PathLock, of_process};
use cairn_data_path::reservation_file::UNREADABLE;

/// Another target uses the state directory.
#[derive(Debug, thiserror::Error)]
#[error(
    "state_directory {} is in use by another target{}: stop that target, or give this one a \
     directory of its own, by [target] state_directory",
    folder.display(), of_process(*pid)
)]
pub struct StateInUse {
    folder: PathBuf,
    /// Process ID of the other target; `None` if this user cannot read it.
    pub(crate) pid: Option<u32>,
}

/// State directory of a target, locked at the start or once it is mounted.
#[derive(Debug)]
pub(crate) struct StateDirectory {
    folder: PathBuf,
    held: Mutex<Option<PathLock>>,
    /// True if the directory was missing at the start; unset before.
    was_missing: OnceLock<bool>,
}

impl StateDirectory {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            held: Mutex::default(),
            was_missing: OnceLock::new(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.folder
    }

    #[expect(clippy::disallowed_methods, reason = "on a thread of `files`")]
    fn note_start(&self) {
        self.was_missing.get_or_init(|| !self.folder.is_dir());
    }

    /// Locks the directory. A missing or read-only one is no error here, because its files cannot
    /// change. Blocks on the file system.
    pub(crate) fn lock(&self) -> Result<(), StateInUse> {
        self.note_start();
        let path = lock_file(&self.folder);
        let mut held = self.held();
        if is_at(held.as_ref(), &path) {
            return Ok(());
        }
        *held = None;
        match PathLock::take(&path) {
            Ok(lock) => *held = Some(lock),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                return Err(in_use(&self.folder));
            }
            Err(_) => {}
        }
        Ok(())
    }

    /// Fails if the directory was missing at the start and is empty now, because it may be waiting
    /// for its files. Blocks on the file system.
    pub(crate) fn check_files(&self) -> Result<(), String> {
        if self.was_missing.get() == Some(&true) && is_empty(&self.folder) {
            let folder = self.folder.display();
            return Err(format!("{UNREADABLE}: state_directory {folder} {WAITS}"));
        }
        Ok(())
    }

    /// True if another target has locked the directory, which was replaced. Blocks on the file
    /// system.
    pub(crate) fn has_another_owner(&self) -> bool {
        let path = lock_file(&self.folder);
        !is_at(self.held().as_ref(), &path) && PathLock::is_taken(&path)
    }

    fn held(&self) -> MutexGuard<'_, Option<PathLock>> {
        // Poisoning is harmless.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_at(held: Option<&PathLock>, path: &Path) -> bool {
    held.is_some_and(|lock| lock.is_at(path))
}

/// Fails if another target has locked the directory. Blocks on the file system.
pub(crate) fn check_state(folder: &Path) -> Result<(), StateInUse> {
    match PathLock::is_taken(&lock_file(folder)) {
        true => Err(in_use(folder)),
        false => Ok(()),
    }
}

/// End of the error for a directory that may be waiting for its files.
pub(crate) const WAITS: &str = "was missing when this target started, and is empty now";

/// True if a directory has no file but the lock. Blocks on the file system.
#[expect(clippy::disallowed_methods, reason = "on a thread of `files`")]
pub(crate) fn is_empty(folder: &Path) -> bool {
    folder.read_dir().is_ok_and(|all| {
        let mut names = all.filter_map(Result::ok).map(|one| one.file_name());
        names.all(|name| name == LOCK)
    })
}

const LOCK: &str = "lock";

fn lock_file(folder: &Path) -> PathBuf {
    folder.join(LOCK)
}

fn in_use(folder: &Path) -> StateInUse {
    StateInUse {
        folder: folder.to_owned(),
        pid: PathLock::owner(&lock_file(folder)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_target_has_a_directory_also_when_the_directory_appears_later() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("state");
        let [first, second] = [(); 2].map(|()| StateDirectory::new(&folder));
        first.lock().unwrap();
        assert!(!folder.exists(), "nothing is made");
        std::fs::create_dir(&folder).unwrap();
        first.lock().unwrap();
        first.lock().unwrap();
        for error in [second.lock(), check_state(&folder)] {
            let error = error.unwrap_err().to_string();
            let named = format!("another target (process ID {})", std::process::id());
            assert!(
                error.contains(&named) && error.contains("stop that"),
                "{error}"
            );
        }
        std::fs::remove_dir_all(&folder).unwrap();
        std::fs::create_dir(&folder).unwrap();
        second.lock().unwrap();
        drop(second);
        check_state(&folder).unwrap();
        first.lock().unwrap();
    }
}
