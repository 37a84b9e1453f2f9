//! Blocking waits for hosts with one or several paths.

use std::time::{Duration, Instant};

use crate::error::HostError;

/// Busy-poll time before sleeping, about the latency of a local target.
pub(crate) const SPIN: Duration = Duration::from_micros(50);

/// Host that can be polled and can sleep.
pub(crate) trait Waiting {
    /// Does all work that is due; returns whether there was any.
    fn poll_now(&mut self) -> bool;

    /// Sleeps until there may be something to poll, or until `latest`. May return early.
    fn sleep_until(&mut self, latest: Instant) -> Result<(), HostError>;

    /// Sends pending acknowledgements, because the caller may not poll for a while.
    fn settle(&mut self);
}

/// Polls once, and sleeps briefly if there was no work.
pub(crate) fn step(host: &mut impl Waiting) {
    /// Limits the poll rate of a device on which sleeping fails.
    const NAP: Duration = Duration::from_millis(10);
    if host.poll_now() {
        return;
    }
    if host.sleep_until(Instant::now() + NAP).is_err() {
        std::thread::sleep(NAP);
    }
}

/// Polls until `ready` returns a value, sleeping when idle; then sends pending acknowledgements.
pub(crate) fn wait_until<H: Waiting, T>(
    host: &mut H,
    what: impl Into<String>,
    timeout: Duration,
    ready: impl FnMut(&mut H) -> Option<T>,
) -> Result<T, HostError> {
    let value = poll_until(host, what, timeout, ready)?;
    host.settle();
    Ok(value)
}

/// Like [`wait_until`], for callers that poll again soon: acknowledgements are sent with their next
/// commands.
pub(crate) fn poll_until<H: Waiting, T>(
    host: &mut H,
    what: impl Into<String>,
    timeout: Duration,
    mut ready: impl FnMut(&mut H) -> Option<T>,
) -> Result<T, HostError> {
    let mut idle_since = Instant::now();
    let deadline = idle_since + timeout;
    loop {
        let progress = host.poll_now();
        if let Some(value) = ready(host) {
            return Ok(value);
        }
        let now = Instant::now();
        if now >= deadline {
            let what = what.into();
            return Err(HostError::Timeout { what, timeout });
        }
        if progress {
            idle_since = now;
        } else if now - idle_since > SPIN {
            host.sleep_until(deadline)?;
        }
    }
}
