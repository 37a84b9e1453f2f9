//! Blocking until a condition holds, for hosts with one path and with several.

use std::time::{Duration, Instant};

use crate::error::HostError;

/// How long a wait spins before it sleeps: about what a local target takes.
pub(crate) const SPIN: Duration = Duration::from_micros(50);

/// A host that can be polled, and that can sleep.
pub(crate) trait Waiting {
    /// Does all work that is due; returns whether there was any.
    fn poll_now(&mut self) -> bool;

    /// Sleeps until there is something to poll, or until `latest`. It may return
    /// early.
    fn sleep_until(&mut self, latest: Instant) -> Result<(), HostError>;

    /// Sends the acknowledgements that are due: the caller may not poll for a while.
    fn settle(&mut self);
}

/// Polls once, and sleeps for a moment if there was no work.
pub(crate) fn step(host: &mut impl Waiting) {
    /// Bounds the rate of polls of a device that cannot be slept on.
    const NAP: Duration = Duration::from_millis(10);
    if host.poll_now() {
        return;
    }
    if host.sleep_until(Instant::now() + NAP).is_err() {
        std::thread::sleep(NAP);
    }
}

/// Polls until `ready` returns something, and sleeps if polling finds no work. Then
/// sends the acknowledgements that are due.
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

/// As [`wait_until`], for callers that poll again soon: acknowledgements leave
/// with what they send next.
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
