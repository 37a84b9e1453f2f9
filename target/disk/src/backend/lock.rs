//! The lock on an exported file, by flock(2).
//!
//! The kernel gives such a lock up when the last reference to its open file description is gone,
//! and each operation that the kernel has of a file is such a reference. So a disk that writes does
//! that through the description that has the lock: if the process is killed, no other process
//! gets the lock before the last of its writes has ended. A disk that replaces another one can be
//! the same file: both share the lock, and no other process gets it in between.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use super::Claim;

/// State that all holders of a lock share.
#[derive(Debug)]
struct State {
    /// A descriptor of the open file description that has the lock.
    file: File,
    exclusive: u32,
    shared: u32,
}

impl State {
    fn change(&self, operation: FlockOperation) -> Result<(), Errno> {
        rustix::fs::flock(&self.file, operation)
    }

    /// Makes the shared lock exclusive.
    fn strengthen(&self) -> Result<(), Errno> {
        let locked = self.change(FlockOperation::NonBlockingLockExclusive);
        locked.inspect_err(|_| {
            // The kernel has given up the shared lock, and other processes have one as well.
            let _ = self.change(FlockOperation::NonBlockingLockShared);
        })
    }

    /// Gives up the shared lock of a description that cannot write, and has `file` locked instead.
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

/// A share in the lock on a file. The drop of the last share gives the lock up. While the kernel
/// has operations of the file, none may be dropped.
#[derive(Debug)]
pub(super) struct Lock {
    held: Arc<Mutex<State>>,
    exclusive: bool,
}

/// Whether a disk must be the only one.
fn is_exclusive(claim: Claim) -> bool {
    !claim.read_only && !claim.shared
}

fn duplicate(file: &File) -> Result<File, Errno> {
    let duplicate = file.try_clone();
    duplicate.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// True if writes can go through this open file description.
fn is_writable(file: impl AsFd) -> bool {
    let flags = rustix::fs::fcntl_getfl(file);
    flags.is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDWR)
}

/// True if the data of this open file description goes past the page cache.
pub(super) fn is_direct(file: impl AsFd) -> bool {
    let flags = rustix::fs::fcntl_getfl(file);
    flags.is_ok_and(|flags| flags.contains(OFlags::DIRECT))
}

impl Lock {
    /// Locks the open file description of a disk.
    ///
    /// # Errors
    /// `WOULDBLOCK`: another process or disk holds the lock.
    pub(super) fn take(file: &File, claim: Claim) -> Result<Self, Errno> {
        let exclusive = is_exclusive(claim);
        let operation = if exclusive {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        let state = State {
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

    fn state(&self) -> MutexGuard<'_, State> {
        // Whole after any panic: nothing between its changes panics.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a disk, which opened `own`, to the holders. Returns the file through which the disk
    /// works from then on: a disk that writes uses the description that has the lock.
    ///
    /// # Errors
    /// The disk would have to be the only one, and other processes or disks share the file.
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
        // The close alone would not do: a ring, or a child of this process that has not called exec
        // yet, can keep the description a little longer.
        if let Err(error) = state.change(operation) {
            // Cause: another process that locks the file at this moment.
            tracing::error!(%error, "the lock on a file is not as it should be");
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
        is_trial: false,
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

    /// As if the process were killed while the kernel has a write of the file: a descriptor of the
    /// description stays, and nothing unlocks it.
    #[test]
    fn the_file_that_a_disk_writes_through_has_the_lock() {
        let rig = Rig::new();
        let shared = Claim {
            shared: true,
            ..WRITER
        };
        // The claim before, and that of the disk that writes.
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
                // Closes the descriptors of the lock, as the end of a process does.
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
