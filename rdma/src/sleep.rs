//! Sleeping until endpoints have work.

use std::os::fd::RawFd;
use std::time::Instant;

use cairn_base::wake::{Wake, poll, readable};

use crate::error::FabricError;
use crate::provider::Endpoint;

/// Sleeps until `endpoint` has work, its timer expires, or `latest` is reached.
///
/// May return early, and does not poll the endpoint.
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
        poll(&mut fds, Some(timeout));
    }
    Ok(())
}
