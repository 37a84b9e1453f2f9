//! flock(2) lock of an exported file.
//!
//! The kernel holds a lock until the last reference to the locked file description is closed. Each
//! disk writes through this description, and pending operations hold references to it. Even if a
//! process is killed, no other process can therefore lock the file before the last write has ended.
//! A replacement disk shares the lock.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use super::claim::Claim;

#[derive(Debug)]
struct LockedFile {
    file: File,
    exclusive: u32,
    shared: u32,
}

impl LockedFile {
    fn change(&self, operation: FlockOperation) -> Result<(), Errno> {
        rustix::fs::flock(&self.file, operation)
    }

    fn strengthen(&self) -> Result<(), Errno> {
        let locked = self.change(FlockOperation::NonBlockingLockExclusive);
        locked.inspect_err(|_| {
            // `flock` released the shared lock before it failed. Taking it again normally succeeds,
            // because other processes hold shared locks.
            let _ = self.change(FlockOperation::NonBlockingLockShared);
        })
    }

    /// Takes an exclusive lock through `file`. The old lock is released first, so the file is
    /// briefly unlocked.
    fn move_to(&mut self, file: &File) -> Result<(), Errno> {
        let file = duplicate(file)?;
        self.change(FlockOperation::Unlock)?;
        let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        if let Err(error) = locked {
            let _ = self.change(FlockOperation::NonBlockingLockShared);
            return Err(error);
        }
        self.file = file;
        Ok(())
    }
}

/// Reference to a file's lock. Dropping the last reference releases the lock; the kernel must then
/// have no pending operations on the file.
#[derive(Debug)]
pub(super) struct Lock {
    held: Arc<Mutex<LockedFile>>,
    exclusive: bool,
}

fn is_exclusive(claim: Claim) -> bool {
    !claim.read_only && !claim.shared
}

fn duplicate(file: &File) -> Result<File, Errno> {
    let duplicate = file.try_clone();
    duplicate.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

fn is_writable(file: impl AsFd) -> bool {
    let flags = rustix::fs::fcntl_getfl(file);
    flags.is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDWR)
}

pub(super) fn is_direct(file: impl AsFd) -> bool {
    let flags = rustix::fs::fcntl_getfl(file);
    flags.is_ok_and(|flags| flags.contains(OFlags::DIRECT))
}

impl Lock {
    /// Fails with `WOULDBLOCK` if another process or disk holds the lock.
    pub(super) fn take(file: &File, claim: Claim) -> Result<Self, Errno> {
        let exclusive = is_exclusive(claim);
        let operation = if exclusive {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        let state = LockedFile {
            file: duplicate(file)?,
            exclusive: u32::from(exclusive),
            shared: u32::from(!exclusive),
        };
        state.change(operation)?;
        Ok(Self {
            held: Arc::new(Mutex::new(state)),
            exclusive,
        })
    }

    fn state(&self) -> MutexGuard<'_, LockedFile> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a disk that has opened the same file as `own`. Returns the file for the disk's I/O,
    /// which is the locked file if the disk writes. Fails if the disk requires exclusive use of a
    /// file that other processes share.
    pub(super) fn share(&self, own: File, claim: Claim) -> io::Result<(Self, File)> {
        let exclusive = is_exclusive(claim);
        let mut state = self.state();
        let is_stronger = exclusive && state.exclusive == 0;
        let file = if claim.read_only {
            own
        } else if is_writable(&state.file) {
            if is_stronger {
                state.strengthen()?;
            }
            state.file.try_clone()?
        } else {
            state.move_to(&own)?;
            own
        };
        if exclusive {
            state.exclusive += 1;
        } else {
            state.shared += 1;
        }
        let held = Arc::clone(&self.held);
        Ok((Self { held, exclusive }, file))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut state = self.state();
        if self.exclusive {
            state.exclusive -= 1;
        } else {
            state.shared -= 1;
        }
        let operation = match (state.exclusive, state.shared) {
            (0, 0) => FlockOperation::Unlock,
            (0, _) if self.exclusive => FlockOperation::NonBlockingLockShared,
            _ => return,
        };
        // A ring, or a child process before exec, may keep the description open after the close, so
        // the file must be unlocked first.
        if let Err(error) = state.change(operation) {
            // Logged when another process locks the file concurrently.
            tracing::error!(%error, "the lock on a file is in an unexpected state");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITER: Claim = Claim {
        read_only: false,
        shared: false,
        expected: None,
        trial_until: None,
    };
    const READER: Claim = Claim {
        read_only: true,
        ..WRITER
    };

    struct Rig(tempfile::TempDir);

    impl Rig {
        fn new() -> Self {
            let rig = Self(tempfile::tempdir().unwrap());
            File::create(rig.0.path().join("disk")).unwrap();
            rig
        }

        fn open(&self, claim: Claim) -> File {
            let mut options = File::options();
            let options = options.read(true).write(!claim.read_only);
            options.open(self.0.path().join("disk")).unwrap()
        }

        fn can(&self, claim: Claim) -> bool {
            Lock::take(&self.open(claim), claim).is_ok()
        }
    }

    #[test]
    fn a_lock_is_as_strong_as_its_strongest_holder_and_ends_with_the_last() {
        let rig = Rig::new();
        let file = rig.open(WRITER);
        let writer = Lock::take(&file, WRITER).unwrap();
        let (reader, _) = writer.share(rig.open(READER), READER).unwrap();
        assert!(!rig.can(READER), "one of them writes");
        drop((writer, file));
        assert!(rig.can(READER), "none of them writes");
        assert!(!rig.can(WRITER));
        let (writer, file) = reader.share(rig.open(WRITER), WRITER).unwrap();
        assert!(!rig.can(READER));
        drop((writer, file));
        let other = Lock::take(&rig.open(READER), READER);
        assert!(reader.share(rig.open(WRITER), WRITER).is_err());
        drop(other);
        assert!(!rig.can(WRITER), "it reads as before");
        drop(reader);
        assert!(rig.can(WRITER));
    }

    #[test]
    fn the_file_that_a_disk_writes_through_has_the_lock() {
        let rig = Rig::new();
        let shared = Claim {
            shared: true,
            ..WRITER
        };
        let cases = [
            (None, WRITER),
            (Some(WRITER), WRITER),
            (Some(WRITER), shared),
            (Some(shared), WRITER),
            (Some(READER), WRITER),
        ];
        for (former, claim) in cases {
            let own = rig.open(claim);
            let former = former.map(|former| (Lock::take(&rig.open(former), former), former));
            let (lock, file) = match &former {
                None => (Lock::take(&own, claim).unwrap(), own),
                Some((former, _)) => former.as_ref().unwrap().share(own, claim).unwrap(),
            };
            let killed = |lock: Lock| {
                let state = Arc::clone(&lock.held);
                std::mem::forget(lock);
                let mut state = state.lock().unwrap();
                state.file = File::open("/dev/null").unwrap();
            };
            killed(lock);
            if let Some((former, _)) = former {
                std::mem::forget(former);
            }
            assert!(!rig.can(WRITER), "{claim:?}");
            drop(file);
            assert!(rig.can(WRITER), "{claim:?}");
        }
    }
}
