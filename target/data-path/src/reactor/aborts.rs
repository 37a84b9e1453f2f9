//! Aborts of commands at a disk. An Abort completes with the aborted command, or at its deadline.

use std::sync::Arc;
use std::time::Instant;

use crate::registry::SubsystemShared;

#[derive(Debug)]
pub(super) struct Abort {
    pub(super) tag: u64,
    pub(super) subsystem: Arc<SubsystemShared>,
    pub(super) cntlid: u16,
    pub(super) abort_cid: u16,
    pub(super) until: Instant,
}

impl Abort {
    pub(super) fn answer(&self, aborted: bool) {
        self.subsystem
            .abort_done(self.cntlid, self.abort_cid, aborted);
    }
}

#[derive(Debug, Default)]
pub(super) struct Aborts {
    /// At most ACL + 1 per controller.
    waiting: Vec<Abort>,
}

impl Aborts {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn add(&mut self, abort: Abort) {
        self.waiting.push(abort);
    }

    pub(super) fn has(&self, tag: u64) -> bool {
        self.waiting.iter().any(|abort| abort.tag == tag)
    }

    pub(super) fn answer(&mut self, tag: u64, aborted: bool) {
        for abort in self.waiting.extract_if(.., |abort| abort.tag == tag) {
            abort.answer(aborted);
        }
    }

    pub(super) fn end_late(&mut self, now: Instant) {
        for abort in self.waiting.extract_if(.., |abort| abort.until <= now) {
            abort.answer(false);
        }
    }
}
