//! Waiting for file descriptors, and waking a waiting thread.
//!
//! Why `unsafe` here: our dependencies have no safe wrapper of poll(2).

#[cfg(not(cairn_loom))]
mod eventfd;
#[cfg(cairn_loom)]
mod modelled;

use std::os::fd::RawFd;
use std::time::Duration;

#[cfg(not(cairn_loom))]
pub use eventfd::Wake;
#[cfg(cairn_loom)]
pub use modelled::Wake;

/// Waits until one of `fds` is readable or `timeout` has passed, and returns which are readable.
///
/// Waits without limit if `timeout` is `None`.
pub fn wait_readable<const N: usize>(fds: [RawFd; N], timeout: Option<Duration>) -> [bool; N] {
    let mut polled = fds.map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    // Rounded up: a wait that ends just before the deadline would be repeated.
    let timeout_ms = timeout.map_or(-1, |timeout| {
        i32::try_from(timeout.as_millis().saturating_add(1)).unwrap_or(i32::MAX)
    });
    // SAFETY: `polled` has N entries.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, timeout_ms) };
    polled.map(|entry| ready > 0 && entry.revents != 0)
}
