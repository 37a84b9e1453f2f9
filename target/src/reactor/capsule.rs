//! Capsules arrive.

use cairn_rdma::{Completion, WorkStatus};
use nvme_proto::wire::Status;
use nvme_proto::wire::sqe::SQE_BYTES;

use super::Reactor;
use super::count::count_end;
use super::io::begin_io;
use super::respond::try_respond;
use crate::metrics::Way;
use crate::qpair::{Ending, QpairId};
use crate::request::Task;
use crate::work_id::WorkKind;

/// A command capsule in its receive slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capsule {
    pub(super) qpair: QpairId,
    pub(super) slot: u32,
    /// Bytes of in-capsule data.
    pub(super) data_bytes: u32,
    /// When it was seen.
    pub(super) seen_ns: u64,
}

impl Reactor {
    /// A receive completed.
    pub(super) fn capsule_arrived(&mut self, port: usize, slot: u32, completion: &Completion) {
        match self.accept_capsule(port, slot, completion) {
            Some(capsule) if self.requests.is_full() || !self.backlog.is_empty() => {
                self.counters.request_waits.add(1);
                self.backlog.push_back(capsule);
            }
            Some(capsule) => self.admit(capsule),
            None => self.repost(port, slot),
        }
    }

    /// The capsule, if it is one and its queue may send it.
    fn accept_capsule(
        &mut self,
        port: usize,
        slot: u32,
        completion: &Completion,
    ) -> Option<Capsule> {
        let port = self.ports[port].as_mut()?;
        port.slot_filled();
        let qpair = port.qpair(completion.qp)?;
        let queue = &mut self.qpairs[qpair];
        if !queue.is_open() || self.draining {
            return None;
        }
        match completion.status {
            WorkStatus::Success => {}
            WorkStatus::Flushed => return None,
            // A capsule that is too long breaks the queue pair by itself.
            failed => {
                self.close(qpair, Ending::Work(WorkKind::Receive, failed));
                return None;
            }
        }
        let Some(data_bytes) = completion.byte_len.checked_sub(SQE_BYTES as u32) else {
            self.close(
                qpair,
                Ending::Fault("the host sent a capsule that is shorter than a command"),
            );
            return None;
        };
        queue.command_begins();
        if queue.outstanding > u32::from(queue.entries) {
            self.close(
                qpair,
                Ending::Fault("the host has more commands outstanding than its queue has entries"),
            );
            return None;
        }
        Some(Capsule {
            qpair,
            slot,
            data_bytes,
            seen_ns: self.now_ns,
        })
    }

    /// Takes a request for a capsule and begins with it.
    pub(super) fn admit(&mut self, capsule: Capsule) {
        let Capsule {
            qpair,
            slot,
            data_bytes,
            seen_ns,
        } = capsule;
        let queue = &mut self.qpairs[qpair];
        queue.requests += 1;
        let port = self.ports[queue.port].as_mut();
        let port = port.expect("an open queue pair has a port");
        let (id, request) = self.requests.take(qpair, port.slots().sqe(slot));
        request.in_capsule_bytes = data_bytes;
        request.way = Way::seen(seen_ns);
        if data_bytes == 0 {
            port.repost(slot);
        } else {
            request.receive = Some(slot);
        }
        let Some(association) = &queue.association else {
            return self.begin_connect(id);
        };
        if association.qid == 0 {
            return self.begin_admin(id);
        }
        match begin_io(request, association, queue.port, &mut self.disks) {
            Ok(true) if data_bytes == 0 => {
                request.way.held(self.now_ns);
                request.end(Status::SUCCESS, 0, self.now_ns);
                let outboxes = (&self.arena, &mut self.dirty);
                if try_respond(id, request, queue, port, outboxes, self.now) {
                    count_end(request, queue.association.as_ref(), &self.disks);
                } else {
                    self.finish(id, Status::SUCCESS, 0);
                }
            }
            Ok(_) => self.acquire(id),
            Err(status) => self.fail_io(id, status),
        }
    }

    /// Answers a command that was parked.
    pub(super) fn complete_late(
        &mut self,
        qpair: QpairId,
        completion: nvme_proto::controller::Completion,
    ) {
        use nvme_proto::wire::{FromZeros, Sqe, U16};
        if !self.qpairs.get(qpair).is_some_and(|queue| queue.is_open()) {
            return;
        }
        let sqe = Sqe {
            cid: U16::new(completion.cid),
            ..Sqe::new_zeroed()
        };
        let (id, request) = self.requests.take(qpair, sqe);
        request.task = Task::LateCompletion;
        let queue = &mut self.qpairs[qpair];
        queue.requests += 1;
        queue.command_begins();
        self.finish(id, completion.status, completion.result);
    }

    /// Posts a receive slot again at the end of the round.
    #[inline]
    pub(super) fn repost(&mut self, port: usize, slot: u32) {
        // A port that is gone takes its slots with it.
        if let Some(port) = &mut self.ports[port] {
            port.repost(slot);
        }
    }
}
