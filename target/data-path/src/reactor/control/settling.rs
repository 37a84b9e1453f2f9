//! Settling of changed access decisions.
//!
//! [`Message::Settle`](crate::registry::Message::Settle) begins an epoch. Commands of older epochs
//! are [decided](crate::reactor::stages::decisions) again before they reach their disk. The control
//! plane gets an answer once no such command is at a disk.

use std::sync::Arc;

use crate::reactor::Reactor;
use crate::reactor::disks::Disks;
use crate::reactor::queues::Queues;
use crate::registry::{Scope, Settling};
use crate::request::{Request, Stage, Task};
use crate::reservations::Restriction;

#[derive(Debug)]
pub(in crate::reactor) struct Unsettled {
    epoch: u32,
    settling: Arc<Settling>,
}

fn is_change(request: &Request) -> bool {
    matches!(request.task, Task::Io(kind) if kind.changes())
}

fn is_forbidden(
    restriction: &Restriction,
    request: &Request,
    queues: &Queues,
    disks: &Disks,
) -> bool {
    let (Some(disk), Task::Io(kind)) = (request.disk, request.task) else {
        return false;
    };
    let association = queues.qpairs[request.qpair].association.as_ref();
    let Some(host) = association.map(|of| of.controller.hostid()) else {
        return false;
    };
    let next = restriction.next.as_ref();
    Arc::ptr_eq(disks[disk].namespace.reserving(), &restriction.reserving)
        && (restriction.aborted.contains(host)
            || next.is_some_and(|next| next.forbids(host, kind.access())))
}

impl Unsettled {
    fn waits_for(&self, request: &Request, queues: &Queues, disks: &Disks) -> bool {
        let is_older = (request.epoch.wrapping_sub(self.epoch) as i32) < 0;
        is_older
            && request.stage() == Stage::InBackend
            && match &self.settling.scope {
                Scope::Namespaces(ids) => {
                    let of_them = |disk: u32| ids.contains(&disks[disk].namespace.id);
                    is_change(request) && request.disk.is_some_and(of_them)
                }
                Scope::Reservation(restriction) => {
                    is_forbidden(restriction, request, queues, disks)
                }
                Scope::Controller(controller) => {
                    let association = queues.qpairs[request.qpair].association.as_ref();
                    let is_own =
                        association.is_some_and(|of| Arc::ptr_eq(&of.controller, controller));
                    is_change(request) && is_own
                }
            }
    }
}

impl Reactor {
    pub(in crate::reactor) fn settle(&mut self, settling: Arc<Settling>) {
        if let Scope::Reservation(restriction) = &settling.scope {
            self.io.disks.restrict(restriction);
            // The control plane waits only for the latest restriction of a reservation.
            self.control.unsettled.retain(|earlier| {
                !matches!(&earlier.settling.scope, Scope::Reservation(of)
                    if Arc::ptr_eq(&of.reserving, &restriction.reserving))
            });
        }
        let epoch = self.io.disks.begin_epoch();
        self.control.unsettled.push(Unsettled { epoch, settling });
        self.time.next_check = self.time.now.at;
    }

    /// Commands of a panicked reactor count as older.
    pub(in crate::reactor) fn answer_settled(&mut self) {
        let (queues, disks) = (&self.queues, &self.io.disks);
        let requests = &queues.requests;
        if self.control.unsettled.is_empty() || !self.control.orphans.is_empty() {
            return;
        }
        self.control.unsettled.retain(|unsettled| {
            let waits = requests
                .taken()
                .any(|id| unsettled.waits_for(&requests[id], queues, disks));
            if !waits {
                unsettled.settling.answer();
            }
            waits
        });
    }
}
