//! What a host's former associations still have at the disks.
//!
//! A host that connects anew may have died, or given up, with commands of its old
//! association in a backend. Such a write must not land after the host's next one. So each
//! queue of the older associations has a claim here; its reactor reports which namespaces
//! its commands can still change. Until those are done the new association changes
//! none of these namespaces.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Mailbox, Message};

/// How long a Connect waits for the commands of former associations.
pub(crate) const CONNECT_WAIT: Duration = Duration::from_secs(2);

/// The claims on one association.
#[derive(Debug)]
pub(crate) struct Ward {
    settled: AtomicBool,
    /// The NSIDs that each queue's commands may still change. `None`: its reactor has not
    /// said.
    claims: Mutex<Vec<Option<BTreeSet<u32>>>>,
    /// Since when, in nanoseconds since the target started.
    begun_ns: u64,
    /// The reactor whose Connect waits.
    waiter: Mailbox,
}

impl Ward {
    /// A ward with so many claims.
    pub(crate) fn new(claims: usize, begun: Duration, waiter: Mailbox) -> Self {
        Self {
            settled: AtomicBool::new(false),
            claims: Mutex::new(vec![None; claims]),
            begun_ns: begun.as_nanos() as u64,
            waiter,
        }
    }

    /// What the commands of a queue may still change.
    pub(crate) fn report(&self, claim: usize, pending: BTreeSet<u32>) {
        let mut claims = self.claims();
        claims[claim] = Some(pending);
        let done = |claim: &Option<BTreeSet<u32>>| claim.as_ref().is_some_and(BTreeSet::is_empty);
        if claims.iter().all(done) && !self.settled.swap(true, Ordering::Release) {
            self.waiter.send(Message::Settled);
        }
    }

    /// Whether nothing of the former associations is left.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// Whether a Connect need not wait, or no longer.
    pub(crate) fn is_past(&self, now_ns: u64) -> bool {
        let waited_ns = now_ns.saturating_sub(self.begun_ns);
        self.is_settled() || waited_ns >= CONNECT_WAIT.as_nanos() as u64
    }

    /// Whether a former command may still change the namespace.
    pub(crate) fn blocks(&self, nsid: u32) -> bool {
        let of = |claim: &Option<BTreeSet<u32>>| {
            claim.as_ref().is_none_or(|pending| pending.contains(&nsid))
        };
        !self.is_settled() && self.claims().iter().any(of)
    }

    /// A panic leaves it whole: a report replaces one claim, and what has no report blocks.
    fn claims(&self) -> MutexGuard<'_, Vec<Option<BTreeSet<u32>>>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_namespace_is_free_when_no_claim_names_it() {
        let (waiter, inbox) = Mailbox::new().unwrap();
        let ward = Ward::new(2, Duration::ZERO, waiter);
        assert!(ward.blocks(1), "no reactor has reported");
        ward.report(0, BTreeSet::from([1]));
        ward.report(1, BTreeSet::from([2]));
        assert!(ward.blocks(1) && ward.blocks(2) && !ward.blocks(3));
        ward.report(0, BTreeSet::new());
        assert!(!ward.blocks(1) && !ward.is_settled());
        assert!(!inbox.rest().messages);
        ward.report(1, BTreeSet::new());
        assert!(ward.is_settled() && !ward.blocks(2));
        assert!(matches!(inbox.try_recv(), Some(Message::Settled)));
    }

    #[test]
    fn a_connect_waits_a_bounded_time() {
        let (waiter, _inbox) = Mailbox::new().unwrap();
        let ward = Ward::new(1, Duration::from_secs(1), waiter);
        assert!(!ward.is_past(2_999_999_999));
        assert!(ward.is_past(3_000_000_000));
    }
}
