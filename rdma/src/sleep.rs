//! Sleeping until endpoints have work.

use std::time::Instant;

use cairn_base::wake::{Wake, poll, pollfd, readable};

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
    sleep_beside(endpoints, &[], latest)
}

/// Sleeps until `endpoint` has work, its timer expires, `wake` is woken, or `latest` is reached.
pub fn sleep_until_ready_or_woken(
    endpoint: &mut dyn Endpoint,
    wake: &Wake,
    latest: Instant,
) -> Result<(), FabricError> {
    sleep_beside([endpoint], &[readable(wake.fd())], latest)
}

/// Like [`sleep_until_any_ready`], and ends when one of `others` has an event (poll(2)).
pub fn sleep_beside<'a>(
    endpoints: impl IntoIterator<Item = &'a mut dyn Endpoint>,
    others: &[pollfd],
    latest: Instant,
) -> Result<(), FabricError> {
    let mut fds = others.to_vec();
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
