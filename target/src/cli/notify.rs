//! Notifications to the service manager (sd_notify(3)), if `NOTIFY_SOCKET` is set.

use std::time::Duration;

use sd_notify::NotifyState;

pub(super) fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
}

pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(_) => send(&[NotifyState::Reloading]),
    }
}

pub(super) fn watchdog() -> Option<Duration> {
    let own = std::env::var("WATCHDOG_PID").ok();
    if own.is_some_and(|pid| pid != std::process::id().to_string()) {
        return None;
    }
    let limit_us: u64 = std::env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    (limit_us > 0).then(|| Duration::from_micros(limit_us) / 3)
}

pub(super) fn alive() {
    send(&[NotifyState::Watchdog]);
}

pub(super) fn status(line: &str) {
    send(&[NotifyState::Status(line)]);
}

pub(super) fn stopping() {
    send(&[NotifyState::Stopping]);
}

fn send(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        // Logged at a start, reload, stop, change of health or watchdog beat.
        tracing::warn!(
            %error,
            "cannot notify the service manager: check that NOTIFY_SOCKET names an existing socket \
             (abstract names, with @ in front, are not supported)"
        );
    }
}
