//! Settling of changed decisions.
//!
//! After [`Message::Settle`](crate::registry::Message::Settle), commands of older epochs are
//! [decided](crate::reactor::stages::decisions) again before they reach their disk. The reactor
//! answers the control plane once no such command is at a disk.

use std::sync::Arc;

use crate::reactor::Reactor;
use crate::reactor::disks::Disks;
use crate::reactor::queues::Queues;
use crate::registry::{Scope, Settling};
use crate::request::{Request, Stage, Task};

#[derive(Debug)]
pub(in crate::reactor) struct Unsettled {
    epoch: u32,
    settling: Arc<Settling>,
}

fn is_at_disk(request: &Request) -> bool {
    let changes = matches!(request.task, Task::Io(kind) if kind.changes());
    changes && request.stage() == Stage::InBackend
}

impl Unsettled {
    fn waits_for(&self, request: &Request, queues: &Queues, disks: &Disks) -> bool {
        let is_older = (request.epoch.wrapping_sub(self.epoch) as i32) < 0;
        is_older
            && is_at_disk(request)
            && match &self.settling.scope {
                Scope::Namespaces(ids) => request
                    .disk
                    .is_some_and(|disk| ids.contains(&disks[disk].namespace.id)),
                Scope::Controller(controller) => {
                    let association = queues.qpairs[request.qpair].association.as_ref();
                    association.is_some_and(|of| Arc::ptr_eq(&of.controller, controller))
                }
            }
    }
}

impl Reactor {
    pub(in crate::reactor) fn settle(&mut self, settling: Arc<Settling>) {
        let epoch = self.io.disks.begin_epoch();
        self.control.unsettled.push(Unsettled { epoch, settling });
        self.time.next_check = self.time.now.at;
    }

    /// Commands of a panicked reactor count as older than any change.
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
