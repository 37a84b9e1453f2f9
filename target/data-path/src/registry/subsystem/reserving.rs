//! Reservations: changes requested by hosts and administrators, and their answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nvme_proto::controller::Completion;
use nvme_proto::reservation::Change;
use nvme_proto::wire::Status;

use super::{SubsystemShared, SubsystemState};
use crate::namespace::Namespace;
use crate::registry::{ControlMessage, ControllerShared, Message, QueueAddress, ReservationStep};
use crate::reservations::Wish;

/// Owner of administrators' changes. IDs of associations count from 0.
const ADMINISTRATOR: u64 = u64::MAX;

impl SubsystemShared {
    /// A message completes the command.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        namespace: &Arc<Namespace>,
        controller: &Arc<ControllerShared>,
        queue: QueueAddress,
        cid: u16,
        change: Change,
    ) {
        let (subsystem, controller) = (Arc::clone(self), Arc::clone(controller));
        let answering = Arc::clone(self);
        self.submit(
            namespace,
            Wish {
                owner: controller.sender().association,
                host: controller.hostid,
                change,
                is_live: Box::new(move || subsystem.is_live(&controller)),
                done: Box::new(move |result| {
                    let status = result.err().unwrap_or(Status::SUCCESS);
                    let completion = Completion {
                        cid,
                        status,
                        result: 0,
                    };
                    answering.send(Some(&queue), |qpair| Message::Complete {
                        qpair,
                        completion,
                    });
                }),
            },
        );
    }

    /// Forwards Set Features to the control plane, because the subsystem is locked.
    pub(super) fn request_persistence(
        &self,
        state: &SubsystemState,
        controller: &Arc<ControllerShared>,
        nsid: u32,
        change: u64,
        persistent: bool,
    ) {
        if let Some(entry) = state.namespaces.get(nsid) {
            let controller = Arc::clone(controller);
            self.report_step(
                &entry.namespace,
                ReservationStep::Persist {
                    controller,
                    change,
                    persistent,
                },
            );
        }
    }

    pub fn persist_reservations(
        self: &Arc<Self>,
        namespace: &Arc<Namespace>,
        controller: Arc<ControllerShared>,
        change: u64,
        persistent: bool,
    ) {
        let (subsystem, nsid) = (Arc::clone(self), namespace.nsid);
        let answering = Arc::clone(self);
        let cntlid = controller.cntlid;
        self.submit(
            namespace,
            Wish {
                owner: controller.sender().association,
                host: controller.hostid,
                change: Change::Persist(persistent),
                is_live: Box::new(move || subsystem.is_live(&controller)),
                done: Box::new(move |result| {
                    let status = result.err().unwrap_or(Status::SUCCESS);
                    answering.administer(|subsystem, actions| {
                        subsystem.persistence_done(cntlid, nsid, change, status, actions);
                    });
                }),
            },
        );
    }

    /// Clears reservation and registrations for an administrator. The change sets `claimed` when it
    /// begins. If the administrator has set `claimed` first, `done` is dropped.
    pub fn clear_reservations(
        self: &Arc<Self>,
        namespace: &Arc<Namespace>,
        claimed: Arc<AtomicBool>,
        done: impl FnOnce(Result<(), Status>) + Send + 'static,
    ) {
        let (subsystem, disk) = (Arc::clone(self), Arc::clone(namespace));
        let is_live = move || subsystem.exports(&disk) && !claimed.swap(true, Ordering::AcqRel);
        self.submit(
            namespace,
            Wish {
                owner: ADMINISTRATOR,
                host: [0; 16],
                change: Change::Clear,
                is_live: Box::new(is_live),
                done: Box::new(done),
            },
        );
    }

    fn submit(&self, namespace: &Arc<Namespace>, wish: Wish) {
        if namespace.reserving().submit(wish) {
            self.report_step(namespace, ReservationStep::Begun);
        }
    }

    fn report_step(&self, namespace: &Arc<Namespace>, step: ReservationStep) {
        self.report_control(ControlMessage::Reservation {
            subsystem: self.id,
            namespace: Arc::clone(namespace),
            step,
        });
    }

    /// Answers the pending change, which takes effect if `settled`, and begins the next change.
    pub fn reservation_ended(&self, namespace: &Arc<Namespace>, settled: bool) {
        let Some(ended) = namespace.reserving().end(settled) else {
            return;
        };
        if self.exports(namespace) {
            let nsid = namespace.nsid;
            self.administer(|subsystem, actions| {
                subsystem.reservations_changed(nsid, ended.persist, &ended.notices, actions);
            });
        }
        (ended.done)(match settled {
            true => Ok(()),
            false => Err(Status::INTERNAL_ERROR),
        });
        if namespace.reserving().go_on() {
            self.report_step(namespace, ReservationStep::Begun);
        }
    }

    /// False after the namespace was removed. A reload may have given its NSID to another disk.
    fn exports(&self, namespace: &Namespace) -> bool {
        let exported = self.namespaces();
        let exported = exported.get(namespace.nsid);
        let exported = exported.map(|entry| entry.namespace.reserving());
        exported.is_some_and(|of| Arc::ptr_eq(of, namespace.reserving()))
    }

    /// False after the association has ended. Its commands must not be executed, because the host
    /// may have sent them again.
    fn is_live(&self, controller: &Arc<ControllerShared>) -> bool {
        let is_over = controller.is_over(self.now().as_nanos() as u64);
        let state = self.lock();
        let own = state.controllers.get(&controller.cntlid);
        let is_own = own.is_some_and(|own| Arc::ptr_eq(&own.shared, controller));
        let of_protocol = state.subsystem.controller(controller.cntlid);
        is_own && !is_over && of_protocol.is_some_and(nvme_proto::controller::Controller::is_ready)
    }
}
