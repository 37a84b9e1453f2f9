//! Time that passed without a round: an idle reactor slept, or its process was stopped, its
//! machine suspended, its thread kept from running.
//!
//! What came in meanwhile may be stale: its host may have given this target up and gone on
//! by another way. So before anything is taken from a device, associations end whose time
//! is over, by a clock that goes on through all of that; and what comes from the others
//! waits until the reactor has seen which of their connections have ended.

use std::time::Duration;

use super::Reactor;
use crate::ids::QpairId;
use crate::registry::{ControlMessage, KEEP_ALIVE_EXPIRED};

pub(super) use crate::ring::GAP;

/// How long capsules wait after a gap in which the reactor was to run: the threads that
/// report ended connections were stopped with it, and have to run first.
const HOLD: Duration = Duration::from_millis(20);

impl Reactor {
    /// There was a gap before this round.
    pub(super) fn heed_gap(&mut self) {
        self.end_overdue();
        let hold = if self.asleep { Duration::ZERO } else { HOLD };
        self.hold_until = Some(self.now + hold);
        self.next_check = self.now;
        if !self.asleep {
            self.lines.pardon(self.now);
        }
    }

    /// Ends the queues of associations whose time is over: nothing of theirs is executed
    /// that was not already.
    fn end_overdue(&mut self) {
        let overdue: Vec<QpairId> = self
            .qpairs
            .ids()
            .filter(|&id| self.qpairs[id].is_open() && self.qpairs[id].is_over(self.now_ns))
            .collect();
        for qpair in overdue {
            self.expire(qpair);
        }
    }

    /// Ends a queue of an association whose time is over.
    pub(super) fn expire(&mut self, qpair: QpairId) {
        self.close(qpair, KEEP_ALIVE_EXPIRED);
        // Its other queues are the control plane's to end.
        let _ = self.control.send(ControlMessage::TimersChanged);
    }
}
