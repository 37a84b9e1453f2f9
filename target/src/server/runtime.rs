//! Runtime of the control plane, and timers driven by the target's clock.

use std::io;
use std::time::Instant;

use cairn_base::Clock;
use tokio::runtime::Runtime;

pub(super) fn new() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// Waits until `deadline` of `clock`. A system suspend delays the return, because the runtime's
/// clock does not count it.
pub(super) fn timer(clock: &Clock, deadline: Option<Instant>) -> impl Future<Output = ()> + use<> {
    let wait = deadline.map(|deadline| deadline.saturating_duration_since(clock.now()));
    async move {
        match wait {
            Some(wait) => tokio::time::sleep(wait).await,
            None => std::future::pending().await,
        }
    }
}
