//! Waking a thread that sleeps on file descriptors.
//!
//! Unsafe for the system calls `eventfd`, `read`, `write` and `poll`.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use cairn_rdma::FabricError;

use crate::explain;

/// An eventfd: readable from `set` to `clear`.
#[derive(Debug)]
pub(crate) struct Wake(OwnedFd);

impl Wake {
    pub(crate) fn new() -> Result<Self, FabricError> {
        // SAFETY: plain call; the result is checked.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(explain::os("eventfd", io::Error::last_os_error()));
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub(crate) fn set(&self) {
        // SAFETY: eight readable bytes. A full counter wakes just as well.
        unsafe { libc::write(self.fd(), (&raw const ONE).cast(), 8) };
    }

    pub(crate) fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: room for eight bytes.
        unsafe { libc::read(self.fd(), (&raw mut count).cast(), 8) };
    }
}

static ONE: u64 = 1;

/// Sleeps until one of `fds` is readable or `timeout` is over.
pub(crate) fn wait_readable<const N: usize>(
    fds: [RawFd; N],
    timeout: Option<Duration>,
) -> [bool; N] {
    let mut polled = fds.map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    let timeout_ms = timeout.map_or(-1, |timeout| {
        i32::try_from(timeout.as_millis().saturating_add(1)).unwrap_or(i32::MAX)
    });
    // SAFETY: `polled` has N entries. On failure (a signal) nothing is readable.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, timeout_ms) };
    polled.map(|entry| ready > 0 && entry.revents != 0)
}
