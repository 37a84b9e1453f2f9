//! How one thread makes another's wait on file descriptors return, and that wait.
//!
//! Why `unsafe` here: eventfd and poll have no safe wrapper in the crates we use.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::time::Duration;

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

/// Sleeps until one of `fds` is readable or `timeout` is over, and says which are
/// readable. `None`: for as long as it takes.
pub fn wait_readable<const N: usize>(fds: [RawFd; N], timeout: Option<Duration>) -> [bool; N] {
    let mut polled = fds.map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    // Rounded up, or the last millisecond would be spent spinning.
    let timeout_ms = timeout.map_or(-1, |timeout| {
        i32::try_from(timeout.as_millis().saturating_add(1)).unwrap_or(i32::MAX)
    });
    // SAFETY: `polled` has N entries. On failure (a signal) nothing is readable.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, timeout_ms) };
    polled.map(|entry| ready > 0 && entry.revents != 0)
}
