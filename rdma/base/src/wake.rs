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
/// Entry of [`poll`].
pub use libc::pollfd;
#[cfg(cairn_loom)]
pub use modelled::Wake;

/// Waits until one of `fds` is readable or `timeout` has passed (`None`: no limit). Returns true
/// for each readable descriptor.
pub fn wait_readable<const N: usize>(fds: [RawFd; N], timeout: Option<Duration>) -> [bool; N] {
    let mut polled = fds.map(readable);
    let any = poll(&mut polled, timeout);
    polled.map(|entry| any && entry.revents != 0)
}

/// Returns a [`poll`] entry that waits until `fd` is readable.
#[must_use]
pub const fn readable(fd: RawFd) -> pollfd {
    pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

/// Waits until an entry has an event (poll(2)) or `timeout` has passed (`None`: no limit). Returns
/// true if an entry has an event.
pub fn poll(fds: &mut [pollfd], timeout: Option<Duration>) -> bool {
    // The timeout is rounded up, because a wait that ends just before its deadline would be
    // repeated.
    let timeout_ms = timeout.map_or(-1, |timeout| {
        i32::try_from(timeout.as_millis().saturating_add(1)).unwrap_or(i32::MAX)
    });
    // SAFETY: the pointer and the count describe `fds`, which outlives the call.
    unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout_ms) > 0 }
}
