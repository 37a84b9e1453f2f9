//! Lock file of a resource that one process at a time may use.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// Locked file that contains the owner's process ID. A drop unlocks the file.
///
/// A thread with its own file descriptors has the file open, so that a killed process unlocks it
/// even while another of its threads waits for a hung disk.
#[derive(Debug)]
pub struct PathLock {
    place: (u64, u64),
    end: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl PathLock {
    /// Locks the file, which is created with mode 0600. Nothing removes it, because two processes
    /// could then lock different files.
    ///
    /// # Errors
    /// `WouldBlock` if another process has the lock.
    pub fn take(path: &Path) -> io::Result<Self> {
        let path = path.to_owned();
        let (locked, result) = sync_channel(1);
        let (end, ended) = sync_channel(1);
        let hold = move || hold(&path, &locked, &ended);
        let thread = Builder::new().name("lock".into()).spawn(hold)?;
        let place = result.recv().map_err(io::Error::other)??;
        Ok(Self {
            place,
            end: Some(end),
            thread: Some(thread),
        })
    }

    /// True if the path still leads to the locked file.
    #[must_use]
    pub fn is_at(&self, path: &Path) -> bool {
        path.metadata()
            .is_ok_and(|found| (found.dev(), found.ino()) == self.place)
    }

    /// True if a process has the lock; false if this user cannot find out.
    #[must_use]
    pub fn is_taken(path: &Path) -> bool {
        let shared =
            File::open(path).map(|file| flock(&file, FlockOperation::NonBlockingLockShared));
        matches!(shared, Ok(Err(Errno::WOULDBLOCK)))
    }

    /// Returns the process ID in a lock file, if this user can read it.
    #[must_use]
    pub fn owner(path: &Path) -> Option<u32> {
        let written = std::fs::read_to_string(path).ok()?;
        written.trim().parse().ok()
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Formats an owner for error messages; empty if unknown.
#[must_use]
pub fn of_process(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process ID {pid})"))
}

fn hold(path: &Path, locked: &SyncSender<io::Result<(u64, u64)>>, ended: &Receiver<()>) {
    // Linux before 5.9 fails: the threads then share their descriptors.
    // SAFETY: With this flag, the call closes descriptors of this thread only, which has opened none.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3,
            u32::MAX,
            libc::CLOSE_RANGE_UNSHARE,
        );
    }
    match lock(path) {
        Ok((_file, place)) => {
            let _ = locked.send(Ok(place));
            let _ = ended.recv();
        }
        Err(error) => drop(locked.send(Err(error))),
    }
}

fn lock(path: &Path) -> io::Result<(File, (u64, u64))> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    // Only error messages need the process ID, so a full disk does not prevent the start.
    let _ = file
        .set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    let found = file.metadata()?;
    Ok((file, (found.dev(), found.ino())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_thread_has_the_locked_file_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let lock = PathLock::take(&path).unwrap();
        assert!(PathLock::is_taken(&path) && lock.is_at(&path));
        assert_eq!(PathLock::owner(&path), Some(std::process::id()));
        let second = PathLock::take(&path).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
        let open = |of: &str| {
            // A thread of an earlier attempt may end meanwhile.
            let all = std::fs::read_dir(of).into_iter().flatten().flatten();
            let files = all.filter_map(|one| one.path().read_link().ok());
            files.filter(|file| *file == path).count()
        };
        assert_eq!(open("/proc/self/fd"), 0);
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let folders = tasks.map(|task| task.unwrap().path().join("fd"));
        let holders = folders.filter(|folder| open(folder.to_str().unwrap()) == 1);
        assert_eq!(holders.count(), 1);
        drop(lock);
        assert!(!PathLock::is_taken(&path));
        PathLock::take(&path).unwrap();
    }
}
