//! Execution of actions requested by the protocol's state machine.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nvme_proto::controller::{Action, Outcome, Termination};
use nvme_proto::wire::Status;
use nvme_proto::wire::feature::WriteProtectionState;

use super::{KEEP_ALIVE_EXPIRED, SubsystemShared, SubsystemState};
use crate::ending::Ending;
use crate::ids::QpairId;
use crate::registry::{ControlMessage, Message, QueueAddress, WriteThrough};

impl SubsystemShared {
    pub(super) fn carry_out(&self, state: &SubsystemState, action: Action) {
        if let Action::SetProtection {
            nsid,
            state: protection,
            change,
            ..
        } = action
        {
            // The protection changes even if the controller has ended.
            self.set_protection(state, nsid, protection, change);
        }
        let (Action::Complete { cntlid, .. }
        | Action::DisconnectIoQueues { cntlid }
        | Action::Terminate { cntlid, .. }
        | Action::FlushAll { cntlid }
        | Action::Abort { cntlid, .. }
        | Action::SetWriteCache { cntlid, .. }
        | Action::SetProtection { cntlid, .. }
        | Action::PersistReservations { cntlid, .. }
        | Action::SetSeen { cntlid }) = action;
        let Some(controller) = state.controllers.get(&cntlid) else {
            return;
        };
        match action {
            Action::Complete { completion, .. } => {
                let queue = controller.queues.get(&0);
                self.send(queue, |qpair| Message::Complete { qpair, completion });
            }
            Action::DisconnectIoQueues { .. } => {
                let ending = Ending::Orderly("the controller was reset, shut down or disconnected");
                for (_, queue) in controller.queues.iter().filter(|(qid, _)| **qid != 0) {
                    self.send(Some(queue), |qpair| Message::Disconnect { qpair, ending });
                }
            }
            Action::Terminate { reason, .. } => {
                let ending = explain(reason);
                for (_, queue) in controller.queues.iter().rev() {
                    self.send(Some(queue), |qpair| Message::Disconnect { qpair, ending });
                }
            }
            Action::FlushAll { .. } => self.report_control(ControlMessage::FlushAll {
                subsystem: self.id,
                cntlid,
                namespaces: Arc::clone(&state.namespaces),
            }),
            Action::Abort {
                abort_cid,
                sqid,
                cid,
                ..
            } => {
                let queue = controller.queues.get(&sqid);
                self.send(queue, |qpair| Message::Abort {
                    qpair,
                    cid,
                    abort_cid,
                });
            }
            Action::SetWriteCache { enabled, .. } => controller.shared.set_write_cache(enabled),
            Action::SetProtection { .. } => {}
            Action::PersistReservations {
                nsid,
                change,
                persistent,
                ..
            } => self.request_persistence(state, &controller.shared, nsid, change, persistent),
            Action::SetSeen { .. } => {
                if let Some(of_protocol) = state.subsystem.controller(cntlid) {
                    controller.shared.seen.set(of_protocol.seen());
                }
            }
        }
    }

    fn set_protection(
        &self,
        state: &SubsystemState,
        nsid: u32,
        protection: WriteProtectionState,
        change: u64,
    ) {
        // If the namespace is gone, its removal has completed the Set Features command.
        if let Some(entry) = state.namespaces.get(nsid) {
            let was_protected = entry.namespace.is_protected();
            let is_protected = protection != WriteProtectionState::NONE;
            entry.namespace.set_protected(is_protected);
            self.report_control(ControlMessage::Protect {
                subsystem: self.id,
                namespace: Arc::clone(&entry.namespace),
                state: protection,
                was_protected,
                change,
            });
        }
    }

    pub(super) fn park_write_through(
        &self,
        state: &SubsystemState,
        cntlid: u16,
        actions: &[Action],
        outcome: Outcome,
    ) -> Outcome {
        let off = |action: &Action| matches!(action, Action::SetWriteCache { enabled: false, .. });
        let completion = match outcome {
            Outcome::Complete(completion) if actions.iter().any(off) => completion,
            outcome => return outcome,
        };
        let Some(controller) = state.controllers.get(&cntlid) else {
            return Outcome::Complete(completion);
        };
        let controller = Arc::clone(&controller.shared);
        let change = controller.cache_changes.load(Ordering::Relaxed) + 1;
        self.report_control(ControlMessage::WriteThrough(WriteThrough {
            subsystem: self.id,
            controller,
            change,
            completion,
        }));
        Outcome::Parked
    }

    pub fn write_through_done(&self, wish: &WriteThrough, intact: bool) {
        let state = self.lock();
        let Some(controller) = state.controllers.get(&wish.controller.cntlid) else {
            return;
        };
        let changes = wish.controller.cache_changes.load(Ordering::Relaxed);
        if Arc::ptr_eq(&controller.shared, &wish.controller) && changes == wish.change {
            let mut completion = wish.completion;
            if !intact {
                completion.status = Status::WRITE_FAULT;
            }
            let queue = controller.queues.get(&0);
            self.send(queue, |qpair| Message::Complete { qpair, completion });
        }
    }

    pub fn protection_done(&self, nsid: u32, change: u64, intact: bool) {
        self.with(|state, _, actions| {
            let subsystem = &mut state.subsystem;
            subsystem.protection_done(nsid, change, intact, actions);
        });
    }

    pub(super) fn send(
        &self,
        queue: Option<&QueueAddress>,
        message: impl FnOnce(QpairId) -> Message,
    ) {
        if let Some(queue) = queue {
            self.reactors[queue.reactor].send(message(queue.qpair));
        }
    }

    pub(super) fn report_control(&self, message: ControlMessage) {
        // Sending fails only after the control plane has ended.
        let _ = self.control.send(message);
    }
}

fn explain(reason: Termination) -> Ending {
    match reason {
        Termination::KeepAliveExpired => KEEP_ALIVE_EXPIRED,
        Termination::HostNotAllowed => Ending::Orderly("the host may no longer use the subsystem"),
        Termination::SubsystemRemoved => Ending::Orderly("the subsystem was removed"),
        Termination::TargetFault => {
            Ending::Fault("a reactor that had a queue of its association panicked: see its error")
        }
        Termination::Disconnected => Ending::Orderly("an administrator disconnected it"),
        Termination::CrossControllerReset => {
            Ending::Orderly("the host reset it through another controller")
        }
        Termination::PortRemoved => Ending::Orderly("the listener was removed"),
        Termination::PortNotAllowed => {
            Ending::Orderly("the listener no longer leads to the subsystem")
        }
    }
}
