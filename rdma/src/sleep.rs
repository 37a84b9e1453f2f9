//! Sleeping on an endpoint, for programs that have nothing else to wait for.
//!
//! Why `unsafe` here: the standard library has no wait on several descriptors.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use crate::error::FabricError;
use crate::provider::Endpoint;
use crate::wake::Wake;

/// Sleeps until `endpoint` has something to poll, wants to be polled for its
/// own timers, or `latest` has come. It may return early; it does not poll.
///
/// # Errors
/// The device is gone.
pub fn sleep_until_ready(endpoint: &mut dyn Endpoint, latest: Instant) -> Result<(), FabricError> {
    sleep(endpoint, latest, None)
}

/// The same, and `wake` ends it, too.
///
/// # Errors
/// The device is gone.
pub fn sleep_until_ready_or_woken(
    endpoint: &mut dyn Endpoint,
    latest: Instant,
    wake: &Wake,
) -> Result<(), FabricError> {
    sleep(endpoint, latest, Some(wake.fd()))
}

fn sleep(
    endpoint: &mut dyn Endpoint,
    latest: Instant,
    wake: Option<RawFd>,
) -> Result<(), FabricError> {
    if endpoint.arm()? {
        return Ok(());
    }
    let until = endpoint.next_deadline().unwrap_or(latest).min(latest);
    let timeout = until.saturating_duration_since(Instant::now());
    if timeout.is_zero() {
        return Ok(());
    }
    wait_readable(endpoint, wake, timeout);
    Ok(())
}

/// `poll(2)` for readability. An interrupted call counts as a wake-up.
fn wait_readable(endpoint: &dyn Endpoint, wake: Option<RawFd>, timeout: Duration) {
    let mut fds: Vec<_> = endpoint
        .wait_fds()
        .iter()
        .copied()
        .chain(wake)
        .map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    // Rounded up: to wake just before a deadline would be to spin until it.
    let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX - 1) + 1;
    // SAFETY: the pointer and the count describe `fds`, which outlives the call.
    unsafe {
        libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout_ms);
    }
}
