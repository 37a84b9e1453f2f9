//! Time that passed without a round: an idle reactor slept, or its process was stopped, its
//! machine suspended, its thread kept from running.
//!
//! What came in meanwhile may be stale: its host may have given this target up and gone on
//! by another way. So before anything is taken from a device, associations end whose time
//! is over, by a clock that goes on through all of that; and what comes from the others
//! waits until the reactor has seen which of their connections have ended.
//!
//! The same goes for what a round had taken before it was stopped in the middle: the ring looks
//! at the clock before a disk gets a change, and keeps it if there was a gap since the round began.

use std::time::Duration;

use super::Reactor;
use crate::ids::QpairId;
use crate::registry::{ControlMessage, KEEP_ALIVE_EXPIRED};
use crate::work_id::WorkId;

pub(super) use cairn_disk::GAP;

/// How long capsules wait after a gap in which the reactor was to run: the threads that
/// report ended connections were stopped with it, and have to run first.
const HOLD: Duration = Duration::from_millis(20);

impl Reactor {
    /// There was a gap before this round.
    pub(super) fn heed_gap(&mut self) {
        self.end_overdue();
        let hold = if self.time.asleep {
            Duration::ZERO
        } else {
            HOLD
        };
        self.queues.hold_until = Some(self.time.now.at + hold);
        self.time.next_check = self.time.now.at;
        if !self.time.asleep {
            self.queues.lines.pardon(self.time.now.at);
        }
    }

    /// Ends the queues of associations whose time is over: nothing of theirs is executed
    /// that was not already.
    fn end_overdue(&mut self) {
        let overdue: Vec<QpairId> = self
            .queues
            .qpairs
            .ids()
            .filter(|&id| {
                self.queues.qpairs[id].is_open() && self.queues.qpairs[id].is_over(self.time.now.ns)
            })
            .collect();
        for qpair in overdue {
            self.expire(qpair);
        }
    }

    /// Ends a queue of an association whose time is over.
    pub(super) fn expire(&mut self, qpair: QpairId) {
        self.close(qpair, KEEP_ALIVE_EXPIRED);
        // Its other queues are the control plane's to end.
        let _ = self.control.plane.send(ControlMessage::TimersChanged);
    }

    /// Why an operation was cancelled, if it was not taken back: then it was a change whose lease
    /// had ended before it could begin. The association ends now, before an answer could leave.
    /// If its host sent something in time, while the change waited for its turn, it is tried again.
    #[cold]
    pub(super) fn why_cancelled(&mut self, work: WorkId) -> i32 {
        let id = self.queues.requests.find(work);
        let request = &self.queues.requests[id];
        let block = request.block.as_ref().expect("block I/O is planned");
        let queue = &self.queues.qpairs[request.qpair];
        if block.is_stopped() || !queue.is_open() {
            return libc::ECANCELED;
        }
        let since_start = self.time.clock.now().duration_since(self.time.started);
        if !queue.is_over(since_start.as_nanos() as u64) {
            return libc::EAGAIN;
        }
        let qpair = request.qpair;
        self.expire(qpair);
        libc::ECANCELED
    }
}
