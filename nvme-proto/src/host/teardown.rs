//! Shutdown and reset of a controller.
//!
//! I/O queues close first. Then CC is written, CSTS is polled, and the admin queue closes (Base,
//! 3.6.2 and 3.7.2).

use core::time::Duration;

use crate::wire::Cqe;
use crate::wire::property::{Cc, Csts};

use super::{Action, Association, AssociationState, Cause, KeepAlive, Next, Phase, Renewal};

/// Minimum time limit of a shutdown (Linux's default); RTD3E is ignored.
const SHUTDOWN_MIN: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Teardown {
    goal: Goal,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    Shutdown,
    Reset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Queues,
    Configuration,
    Status,
}

impl Teardown {
    pub(super) const COMMAND: &'static str = "Property Set (CC) or Get (CSTS)";

    pub(super) fn is_reset(self) -> bool {
        self.goal == Goal::Reset
    }

    pub(super) fn goal_name(self) -> &'static str {
        match self.goal {
            Goal::Shutdown => "the end of the shutdown (CSTS.SHST)",
            Goal::Reset => "the end of the reset (CSTS.RDY)",
        }
    }
}

impl Association {
    /// Shuts the controller down and closes all connections; [`Report::Gone`](super::Report::Gone)
    /// follows.
    pub fn shutdown(&mut self, now: Duration) {
        match self.phase {
            Phase::Live => self.leave(Goal::Shutdown, now),
            Phase::Closing(Next::Gone(_)) | Phase::Gone => {}
            Phase::TearingDown(teardown) if !teardown.is_reset() => {}
            // A controller that is not live needs no shutdown: only its connections close.
            _ => self.close(Next::Gone(None), now),
        }
    }

    /// Resets a live controller (CC.EN) and brings it up again. The driver ends or repeats user
    /// commands in flight.
    pub fn reset(&mut self, now: Duration) {
        if self.phase == Phase::Live {
            self.going_up = AssociationState::Resetting;
            self.leave(Goal::Reset, now);
        }
    }

    fn leave(&mut self, goal: Goal, now: Duration) {
        self.keep_alive = KeepAlive::default();
        self.renewal = Renewal::default();
        self.step_due = None;
        let open = self.open.iter().filter(|qid| !self.released.contains(qid));
        let io_queues = open.filter(|&&qid| qid != 0);
        self.actions
            .extend(io_queues.map(|&qid| Action::Disconnect { qid }));
        let stage = Stage::Queues;
        self.phase = Phase::TearingDown(Teardown { goal, stage });
        self.continue_teardown(Teardown { goal, stage }, now);
    }

    pub(super) fn continue_teardown(&mut self, teardown: Teardown, now: Duration) {
        let only_admin = self.open.iter().all(|&qid| qid == 0);
        if teardown.stage != Stage::Queues || !only_admin {
            return;
        }
        let goal = teardown.goal;
        let (cc, patience) = match goal {
            Goal::Shutdown => (self.cc.with_shn(Cc::SHN_NORMAL), SHUTDOWN_MIN),
            Goal::Reset => (self.cc.with_en(false), self.ready_timeout()),
        };
        self.reached_by = now + patience.max(self.settings.step_timeout);
        let stage = Stage::Configuration;
        self.phase = Phase::TearingDown(Teardown { goal, stage });
        self.set_cc(cc, now);
    }

    pub(super) fn left(&mut self, teardown: Teardown, cqe: &Cqe, now: Duration) {
        let goal = teardown.goal;
        if teardown.stage == Stage::Configuration {
            let stage = Stage::Status;
            self.phase = Phase::TearingDown(Teardown { goal, stage });
            return self.look(now);
        }
        let csts = Csts(cqe.dw0.get());
        let next = match goal {
            // CFS is checked first: a failed cache flush sets it together with SHST 10b.
            Goal::Shutdown if csts.cfs() => return self.fail(Cause::Fatal, now),
            Goal::Shutdown if csts.shst() == Csts::SHST_COMPLETE => Next::Gone(None),
            Goal::Reset if !csts.rdy() => Next::BringUp,
            _ if csts.cfs() => return self.fail(Cause::Fatal, now),
            _ => {
                if let Err(cause) = self.look_again(now) {
                    self.fail(cause, now);
                }
                return;
            }
        };
        self.close(next, now);
    }
}
