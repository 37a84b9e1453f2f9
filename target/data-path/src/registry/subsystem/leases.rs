//! Leases of associations: the protocol's keep alive timers, as visible to reactors.
//!
//! Expired associations stay expired: the time of an event is read first, and extends the lease
//! only if the lease had not ended by then.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nvme_proto::controller::Action;

use super::{Controller, SubsystemShared, SubsystemState};
use crate::ending::Ending;
use crate::registry::ControlMessage;

pub(crate) const KEEP_ALIVE_EXPIRED: Ending =
    Ending::Fault("keep alive expired: the host was silent for too long");

impl SubsystemShared {
    /// Calls `job`, but first ends an expired association, because `job` would restart its timer.
    pub(super) fn with_controller<T>(
        &self,
        cntlid: u16,
        job: impl FnOnce(&mut SubsystemState, Duration, &mut Vec<Action>) -> T,
    ) -> T {
        self.with(|state, now, actions| {
            self.end_if_over(state, cntlid, now);
            let result = job(state, now, actions);
            self.renew_lease(state, cntlid);
            result
        })
    }

    pub(super) fn end_if_over(&self, state: &mut SubsystemState, cntlid: u16, now: Duration) {
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

    pub(super) fn renew_lease(&self, state: &mut SubsystemState, cntlid: u16) {
        let Some(controller) = state.subsystem.controller(cntlid) else {
            return;
        };
        if let Some(at) = controller.poll_at()
            && state.armed.is_none_or(|armed| at < armed)
        {
            state.armed = Some(at);
            self.report_control(ControlMessage::TimersChanged);
        }
        let Some((last_command, limit)) = controller.lease() else {
            return;
        };
        if let Some(own) = state.controllers.get(&cntlid) {
            let limit_ns = limit.map_or(u64::MAX, |limit| limit.as_nanos() as u64);
            own.shared.set_last_command(last_command.as_nanos() as u64);
            own.shared.lease_ns.store(limit_ns, Ordering::Relaxed);
        }
    }

    pub fn poll(&self) -> Option<Instant> {
        let next = self.with(|state, now, actions| {
            let SubsystemState {
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
