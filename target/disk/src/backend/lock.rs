//! The lock on a file that is exported. A disk that takes another one's place can be the same
//! file: it shares the lock, so that no other process gets it in between.

use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::Claim;

/// How many hold it, and how.
#[derive(Debug, Default)]
struct Holders {
    exclusive: u32,
    shared: u32,
}

/// What holders share.
#[derive(Debug)]
struct Held {
    file: File,
    holders: Mutex<Holders>,
}

impl Held {
    fn holders(&self) -> MutexGuard<'_, Holders> {
        // Whole after any panic: nothing between its changes panics.
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, operation: FlockOperation) -> Result<(), Errno> {
        rustix::fs::flock(&self.file, operation)
    }
}

/// A lock on a file, or a block device that is open for us alone. The last holder that is dropped
/// gives it up.
#[derive(Debug)]
pub(super) struct Lock {
    held: Arc<Held>,
    exclusive: bool,
}

/// Whether a disk must be the only one.
fn is_exclusive(claim: Claim) -> bool {
    !claim.read_only && !claim.shared
}

impl Lock {
    /// Locks a file.
    ///
    /// # Errors
    /// `WOULDBLOCK`: another one holds it.
    pub(super) fn take(file: File, claim: Claim) -> Result<Self, Errno> {
        let exclusive = is_exclusive(claim);
        let operation = if exclusive {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        rustix::fs::flock(&file, operation)?;
        Ok(Self::of(file, exclusive))
    }

    /// That of a block device, which the kernel lets nothing else open.
    pub(super) fn claimed(device: File) -> Self {
        Self::of(device, true)
    }

    fn of(file: File, exclusive: bool) -> Self {
        let holders = Holders {
            exclusive: u32::from(exclusive),
            shared: u32::from(!exclusive),
        };
        let held = Held {
            file,
            holders: Mutex::new(holders),
        };
        Self {
            held: Arc::new(held),
            exclusive,
        }
    }

    /// What is locked.
    pub(super) fn file(&self) -> &File {
        &self.held.file
    }

    /// One more holder.
    ///
    /// # Errors
    /// It would have to be exclusive, and others of other processes or disks share the file.
    pub(super) fn share(&self, claim: Claim) -> Result<Self, Errno> {
        let exclusive = is_exclusive(claim);
        let mut holders = self.held.holders();
        if exclusive && holders.exclusive == 0 {
            let locked = self.held.change(FlockOperation::NonBlockingLockExclusive);
            locked.inspect_err(|_| {
                // The kernel has given up the shared lock, and those others have one, too.
                let _ = self.held.change(FlockOperation::NonBlockingLockShared);
            })?;
        }
        if exclusive {
            holders.exclusive += 1;
        } else {
            holders.shared += 1;
        }
        Ok(Self {
            held: Arc::clone(&self.held),
            exclusive,
        })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut holders = self.held.holders();
        if self.exclusive {
            holders.exclusive -= 1;
        } else {
            holders.shared -= 1;
        }
        let operation = match *holders {
            Holders {
                exclusive: 0,
                shared: 0,
            } => FlockOperation::Unlock,
            Holders { exclusive: 0, .. } if self.exclusive => FlockOperation::NonBlockingLockShared,
            _ => return,
        };
        // A child of this process that has not called exec yet would keep it.
        if let Err(error) = self.held.change(operation) {
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
    };
    const READER: Claim = Claim {
        read_only: true,
        ..WRITER
    };

    #[test]
    fn a_lock_is_as_strong_as_its_strongest_holder_and_ends_with_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        File::create(&path).unwrap();
        let open = || File::open(&path).unwrap();
        let can_read = || Lock::take(open(), READER).is_ok();
        let writer = Lock::take(open(), WRITER).unwrap();
        let reader = writer.share(READER).unwrap();
        assert!(!can_read(), "one of them writes");
        drop(writer);
        assert!(can_read(), "none of them writes");
        assert!(Lock::take(open(), WRITER).is_err());
        let writer = reader.share(WRITER).unwrap();
        assert!(!can_read());
        drop(writer);
        let other = Lock::take(open(), READER).unwrap();
        assert!(reader.share(WRITER).is_err(), "another one reads");
        drop(other);
        assert!(Lock::take(open(), WRITER).is_err(), "it reads as before");
        drop(reader);
        assert!(Lock::take(open(), WRITER).is_ok());
    }
}
