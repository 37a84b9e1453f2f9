//! Wake-up by an eventfd.
//!
//! Why `unsafe` here: our dependencies have no safe wrapper of eventfd(2).

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

/// Eventfd, readable from [`Wake::wake`] until [`Wake::clear`].
#[derive(Debug)]
pub struct Wake {
    file: File,
}

impl Wake {
    /// Creates an eventfd that is not readable.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the new descriptor has no other owner.
        let file = unsafe { File::from_raw_fd(fd) };
        Ok(Self { file })
    }

    /// Returns the descriptor to watch for readability.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Makes the descriptor readable.
    pub fn wake(&self) {
        // A write fails only at the counter's maximum: the descriptor is readable already.
        let _ = (&self.file).write(&1_u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable.
    pub fn clear(&self) {
        // A read fails only if the counter is 0: the descriptor is not readable.
        let _ = (&self.file).read(&mut [0; 8]);
    }
}
