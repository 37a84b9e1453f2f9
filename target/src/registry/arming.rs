//! The moment from which changes of a host are ordered.
//!
//! Changes of a host with one association are entered nowhere. When another association of it
//! begins, the queues of the older ones enter what they have: their reactors are asked to by a
//! message each, and the Connect of the new one is answered when all have.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{Mailbox, Message};

/// Time that a Connect waits for capsules of the older associations to be given a request.
pub(crate) const CONNECT_WAIT: Duration = Duration::from_secs(2);

/// Queues of older associations that have still to enter their changes.
#[derive(Debug)]
pub(crate) struct Arming {
    left: AtomicUsize,
    begun_ns: u64,
    /// The reactor of the Connect.
    waiter: Mailbox,
}

impl Arming {
    /// Waits for so many queues.
    pub(crate) fn new(queues: usize, begun: Duration, waiter: Mailbox) -> Self {
        Self {
            left: AtomicUsize::new(queues),
            begun_ns: begun.as_nanos() as u64,
            waiter,
        }
    }

    /// A queue has entered its changes. Called once for each.
    pub(crate) fn entered(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.waiter.send(Message::Armed);
        }
    }

    /// Whether all have.
    pub(crate) fn is_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Whether queues must not wait longer for requests.
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
