//! Blocking waits, for hosts with one or several paths.

use std::time::{Duration, Instant};

use crate::error::HostError;

/// Time for which a wait polls before it sleeps: about the latency of a local target.
pub(crate) const SPIN: Duration = Duration::from_micros(50);

pub(crate) trait Waiting {
    fn poll_now(&mut self) -> bool;

    fn sleep_until(&mut self, latest: Instant) -> Result<(), HostError>;

    fn settle(&mut self);
}

pub(crate) fn step(host: &mut impl Waiting) {
    const NAP: Duration = Duration::from_millis(10);
    if host.poll_now() {
        return;
    }
    if host.sleep_until(Instant::now() + NAP).is_err() {
        std::thread::sleep(NAP);
    }
}

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

/// Like [`wait_until`], but sends no delayed acknowledgements, because callers poll again soon.
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
