//! The system's.
//!
//! Why `unsafe` here: eventfd has no safe wrapper in the crates we use.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use crate::error::FabricError;

/// An eventfd: readable once [`Wake::wake`] was called, until [`Wake::clear`].
#[derive(Debug)]
pub struct Wake {
    file: File,
}

impl Wake {
    /// One that has not been woken yet.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> Result<Self, FabricError> {
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(FabricError::last_os("eventfd"));
        }
        // SAFETY: a descriptor that was just made has no other owner.
        let file = unsafe { File::from_raw_fd(fd) };
        Ok(Self { file })
    }

    /// The descriptor to watch.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Makes it readable.
    pub fn wake(&self) {
        // Fails only when the counter is at its maximum: readable all the same.
        let _ = (&self.file).write(&1_u64.to_ne_bytes());
    }

    /// Makes it quiet again.
    pub fn clear(&self) {
        // Fails only when there was no wake-up.
        let _ = (&self.file).read(&mut [0; 8]);
    }
}
