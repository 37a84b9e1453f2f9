//! Sleeping until endpoints have work.
//!
//! Why `unsafe` here: the standard library cannot wait for several descriptors.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use cairn_base::wake::Wake;

use crate::error::FabricError;
use crate::provider::Endpoint;

/// Sleeps until `endpoint` has work, its timer expires, or `latest` is reached.
///
/// May return early. Does not poll the endpoint.
pub fn sleep_until_ready(endpoint: &mut dyn Endpoint, latest: Instant) -> Result<(), FabricError> {
    sleep_until_any_ready([endpoint], latest)
}

/// Sleeps until one of several endpoints has work, a timer expires, or `latest` is reached.
pub fn sleep_until_any_ready<'a>(
    endpoints: impl IntoIterator<Item = &'a mut dyn Endpoint>,
    latest: Instant,
) -> Result<(), FabricError> {
    sleep(endpoints, None, latest)
}

/// Sleeps until `endpoint` has work, its timer expires, `wake` is woken, or `latest` is reached.
pub fn sleep_until_ready_or_woken(
    endpoint: &mut dyn Endpoint,
    wake: &Wake,
    latest: Instant,
) -> Result<(), FabricError> {
    sleep([endpoint], Some(wake.fd()), latest)
}

fn sleep<'a>(
    endpoints: impl IntoIterator<Item = &'a mut dyn Endpoint>,
    wake: Option<RawFd>,
    latest: Instant,
) -> Result<(), FabricError> {
    let mut fds: Vec<_> = wake.into_iter().map(readable).collect();
    let mut until = latest;
    for endpoint in endpoints {
        if endpoint.arm()? {
            return Ok(());
        }
        until = endpoint.next_deadline().unwrap_or(until).min(until);
        fds.extend(endpoint.wait_fds().iter().copied().map(readable));
    }
    let timeout = until.saturating_duration_since(Instant::now());
    if !timeout.is_zero() {
        wait_readable(&mut fds, timeout);
    }
    Ok(())
}

fn readable(fd: RawFd) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

fn wait_readable(fds: &mut [libc::pollfd], timeout: Duration) {
    // Rounded up: a sleep that ends just before the deadline would be repeated.
    let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX - 1) + 1;
    // SAFETY: the pointer and the count describe `fds`, which outlives the call.
    unsafe {
        libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout_ms);
    }
}
