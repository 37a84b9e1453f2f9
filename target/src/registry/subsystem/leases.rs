//! Lifetime of associations: the protocol's keep alive timers and the leases visible to reactors.
//!
//! An expired association does not revive. A command or the end of a queue restarts the timer with
//! a time taken before, and only if the association had not expired at that time. A command that
//! waited through a pause of the process therefore renews nothing.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nvme_proto::controller::Action;

use super::{Controller, State, SubsystemShared};
use crate::ending::Ending;
use crate::registry::ControlMessage;

/// Reason for closing the queues of an expired association.
pub(crate) const KEEP_ALIVE_EXPIRED: Ending =
    Ending::Fault("keep alive expired: the host was silent for too long");

impl SubsystemShared {
    /// Same as [`Self::with`], for jobs that may restart the controller's timer. An expired
    /// association ends first, so the job cannot revive it.
    pub(super) fn with_controller<T>(
        &self,
        cntlid: u16,
        job: impl FnOnce(&mut State, Duration, &mut Vec<Action>) -> T,
    ) -> T {
        self.with(|state, now, actions| {
            // Actions of the expiry precede those of the job.
            self.end_if_over(state, cntlid, now);
            let result = job(state, now, actions);
            self.renew_lease(state, cntlid);
            result
        })
    }

    /// Ends an expired association before the current event could restart its timer.
    pub(super) fn end_if_over(&self, state: &mut State, cntlid: u16, now: Duration) {
        let Some(own) = state.controllers.get(&cntlid) else {
            return;
        };
        let last = || own.shared.last_command();
        let mut actions = Vec::new();
        state.subsystem.poll_one(cntlid, now, last, &mut actions);
        for action in actions {
            self.carry_out(state, action);
        }
    }

    /// Publishes a controller's lease to the reactors, and makes the control plane check earlier if
    /// the lease ends before its next check.
    pub(super) fn renew_lease(&self, state: &mut State, cntlid: u16) {
        let Some(controller) = state.subsystem.controller(cntlid) else {
            return;
        };
        let Some((last_command, limit)) = controller.lease() else {
            return;
        };
        if let Some(own) = state.controllers.get(&cntlid) {
            let limit_ns = limit.map_or(u64::MAX, |limit| limit.as_nanos() as u64);
            own.shared.set_last_command(last_command.as_nanos() as u64);
            own.shared.lease_ns.store(limit_ns, Ordering::Relaxed);
        }
        if let Some(deadline) = controller.deadline()
            && state.armed.is_none_or(|armed| deadline < armed)
        {
            state.armed = Some(deadline);
            self.report_control(ControlMessage::TimersChanged);
        }
    }

    /// Checks the keep alive timers and returns the time of the next check.
    pub(crate) fn poll(&self) -> Option<Instant> {
        let next = self.with(|state, now, actions| {
            let State {
                subsystem,
                controllers,
                ..
            } = state;
            let last = |cntlid| {
                let controller: Option<&Controller> = controllers.get(&cntlid);
                controller.map_or(Duration::ZERO, |own| own.shared.last_command())
            };
            subsystem.poll(now, last, actions);
            state.armed = state.subsystem.next_deadline();
            state.armed
        });
        next.map(|deadline| self.started + deadline)
    }
}
