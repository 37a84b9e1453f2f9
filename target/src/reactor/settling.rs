//! Changes of decisions that are settled once no disk has a command that was planned before them.
//!
//! The control plane changes what commands are planned with (protection, size, visibility, the write cache), and
//! sends each reactor a message ([`Message::Settle`](crate::registry::Message::Settle)). From then on commands of an older epoch do not reach their
//! disks ([`super::decisions`]), and the reactor answers when its disks have let go of those that they have.

use std::sync::Arc;

use super::Reactor;
use super::disks::Disks;
use super::queues::Queues;
use crate::registry::{Scope, Settling};
use crate::request::{Request, Stage, Task};

/// A change that this reactor has yet to answer.
#[derive(Debug)]
pub(super) struct Unsettled {
    /// The first epoch that the change holds in.
    epoch: u32,
    settling: Arc<Settling>,
}

/// Whether a disk has a command that changes it: the backend, or a device that writes to the disk's memory.
fn is_at_disk(request: &Request) -> bool {
    let changes = matches!(request.task, Task::Io(kind) if kind.changes());
    let stage = request.stage();
    changes && (stage == Stage::InBackend || (stage == Stage::Reading && request.window.is_some()))
}

impl Unsettled {
    /// Whether a request was handed to its disk before the change, and is under it.
    fn waits_for(&self, request: &Request, queues: &Queues, disks: &Disks) -> bool {
        // Epochs are compared modulo 2^32.
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
    /// A decision has changed: commands that were planned before are decided on again.
    pub(super) fn settle(&mut self, settling: Arc<Settling>) {
        let epoch = self.io.disks.begin_epoch();
        self.control.unsettled.push(Unsettled { epoch, settling });
        // In this round: someone waits for it.
        self.time.next_check = self.time.now.at;
    }

    /// Answers the changes of which nothing older is left here. A reactor that panicked may have left commands at its
    /// disks: they count as older than any change.
    pub(super) fn answer_settled(&mut self) {
        let (queues, disks) = (&self.queues, &self.io.disks);
        let requests = &queues.requests;
        if self.control.unsettled.is_empty() || !self.control.remains.is_empty() {
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
