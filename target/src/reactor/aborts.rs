//! Aborts of commands that a disk has. Each is answered when its command has ended, or when the
//! disk has not let go of it in time.

use std::sync::Arc;
use std::time::Instant;

use crate::registry::SubsystemShared;

/// An Abort.
#[derive(Debug)]
pub(super) struct Abort {
    /// The tag of the command.
    pub(super) tag: u64,
    pub(super) subsystem: Arc<SubsystemShared>,
    pub(super) cntlid: u16,
    pub(super) abort_cid: u16,
    pub(super) until: Instant,
}

impl Abort {
    /// Answers it.
    pub(super) fn answer(&self, aborted: bool) {
        self.subsystem
            .abort_done(self.cntlid, self.abort_cid, aborted);
    }
}

/// The Aborts that wait for a disk.
#[derive(Debug, Default)]
pub(super) struct Aborts {
    /// Not more than ACL of each controller.
    waiting: Vec<Abort>,
}

impl Aborts {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn add(&mut self, abort: Abort) {
        self.waiting.push(abort);
    }

    /// Whether a host asked to abort the command with this tag.
    pub(super) fn has(&self, tag: u64) -> bool {
        self.waiting.iter().any(|abort| abort.tag == tag)
    }

    /// Answers the Aborts of a command that has ended.
    pub(super) fn answer(&mut self, tag: u64, aborted: bool) {
        for abort in self.waiting.extract_if(.., |abort| abort.tag == tag) {
            abort.answer(aborted);
        }
    }

    /// Answers those whose disk has not let go in time.
    pub(super) fn end_late(&mut self, now: Instant) {
        for abort in self.waiting.extract_if(.., |abort| abort.until <= now) {
            abort.answer(false);
        }
    }
}
