//! Start of the ordering of a host's changes.
//!
//! Changes of a host with one association are not ordered. When the host begins another
//! association, its older queues register pending changes in [`crate::order`] before the Connect
//! completes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{Mailbox, Message};

/// Maximum time that a Connect waits until queued capsules of older queues have requests.
pub(crate) const CONNECT_WAIT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Arming {
    left: AtomicUsize,
    begun_ns: u64,
    waiter: Mailbox,
}

impl Arming {
    pub(crate) fn new(queues: usize, begun: Duration, waiter: Mailbox) -> Self {
        Self {
            left: AtomicUsize::new(queues),
            begun_ns: begun.as_nanos() as u64,
            waiter,
        }
    }

    /// Called once per queue, after it has registered its changes.
    pub(crate) fn entered(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.waiter.send(Message::Armed);
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// True if the Connect has waited for [`CONNECT_WAIT`]. It then no longer waits for capsules
    /// without a request.
    pub(crate) fn is_late(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.begun_ns) >= CONNECT_WAIT.as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connect_goes_on_when_all_queues_have_entered_their_changes() {
        let (waiter, inbox) = Mailbox::new().unwrap();
        let arming = Arming::new(2, Duration::from_secs(1), waiter);
        arming.entered();
        assert!(!arming.is_done() && inbox.try_recv().is_none());
        arming.entered();
        assert!(arming.is_done());
        assert!(matches!(inbox.try_recv(), Some(Message::Armed)));
        assert!(!arming.is_late(2_999_999_999) && arming.is_late(3_000_000_000));
    }
}
