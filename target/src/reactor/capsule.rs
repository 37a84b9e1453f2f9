//! Capsules arrive.

use cairn_rdma::{Completion, WorkStatus};
use nvme_proto::wire::sqe::SQE_BYTES;
use nvme_proto::wire::{FromZeros, Sqe, Status};

use super::Reactor;
use super::count::count_success;
use super::disk::{Begun, begin_io};
use super::port::Port;
use super::respond::try_respond;
use crate::ending::Ending;
use crate::ids::QpairId;
use crate::metrics::{Op, Way};
use crate::qpair::QueuePair;
use crate::request::{Request, RequestId, RequestTable, Task};
use crate::work_id::WorkKind;

/// A command capsule in its receive slot.
#[derive(Debug, Clone, Copy)]
struct Arrived {
    qpair: QpairId,
    slot: u32,
    data_bytes: u32,
    seen_ns: u64,
}

/// A command capsule that waits for a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capsule {
    pub(super) qpair: QpairId,
    /// Where it landed, unless its place was given back while it waits: with its data, if it
    /// had any.
    pub(super) slot: Option<u32>,
    /// The command, if it was copied already.
    pub(super) sqe: Sqe,
    /// Bytes of in-capsule data.
    pub(super) data_bytes: u32,
    /// When it was seen.
    pub(super) seen_ns: u64,
}

/// Bytes of in-capsule data, if this is a capsule and its queue may send it.
#[inline]
fn accept(queue: &mut QueuePair, completion: &Completion) -> Result<u32, Ending> {
    if completion.status != WorkStatus::Success {
        // A capsule that is too long breaks the queue pair by itself.
        return Err(Ending::Work(WorkKind::Receive, completion.status));
    }
    let Some(data_bytes) = completion.byte_len.checked_sub(SQE_BYTES as u32) else {
        return Err(Ending::Fault(
            "the host sent a capsule that is shorter than a command",
        ));
    };
    queue.command_begins();
    if queue.outstanding > u32::from(queue.entries) {
        return Err(Ending::Fault(
            "the host has more commands outstanding than its queue has entries",
        ));
    }
    Ok(data_bytes)
}

/// Takes a request for a capsule that has just arrived.
#[inline(always)]
fn take_on<'a>(
    requests: &'a mut RequestTable,
    arrived: &Arrived,
    queue: &mut QueuePair,
    port: &mut Port,
) -> (RequestId, &'a mut Request) {
    queue.requests += 1;
    let (slot, slots) = (arrived.slot, port.slots());
    let (id, request) = requests.take(arrived.qpair, |sqe| slots.read_sqe(slot, sqe));
    request.in_capsule_bytes = arrived.data_bytes;
    request.way = Way::seen(arrived.seen_ns);
    if arrived.data_bytes == 0 {
        port.repost(slot);
    } else {
        request.receive = Some(slot);
    }
    (id, request)
}

impl Reactor {
    /// A receive completed. A read whose bytes the device takes by itself is parsed,
    /// done and answered here, with all that it touches looked up once.
    pub(super) fn capsule_arrived(&mut self, index: usize, slot: u32, completion: &Completion) {
        // A port that is gone takes its slots with it.
        let Some(port) = &mut self.queues.ports[index] else {
            return;
        };
        port.slot_filled();
        let Some(qpair) = port.qpair(completion.qp) else {
            return port.repost(slot);
        };
        let queue = &mut self.queues.qpairs[qpair];
        if !queue.is_open() || self.queues.draining || completion.status == WorkStatus::Flushed {
            return port.repost(slot);
        }
        if !queue.hear(self.time.now_ns) {
            self.expire(qpair);
            return self.repost(index, slot);
        }
        let arrived = match accept(queue, completion) {
            Ok(data_bytes) => Arrived {
                qpair,
                slot,
                data_bytes,
                seen_ns: self.time.now_ns,
            },
            Err(ending) => {
                self.close(qpair, ending);
                return self.repost(index, slot);
            }
        };
        // With fewer taken nobody can be beyond its share.
        let scarce =
            self.queues.requests.free() < self.queues.plenty || !self.queues.lines.is_empty();
        if scarce || self.queues.hold_until.is_some() {
            return self.admit_or_wait(Capsule {
                qpair,
                slot: Some(slot),
                sqe: Sqe::new_zeroed(),
                data_bytes: arrived.data_bytes,
                seen_ns: arrived.seen_ns,
            });
        }
        let (id, request) = take_on(&mut self.queues.requests, &arrived, queue, port);
        let association = match &queue.association {
            Some(association) if association.qid != 0 => association,
            _ => return self.begin(id),
        };
        match begin_io(request, association, index, &mut self.io.disks) {
            Ok(Begun::Read) if arrived.data_bytes == 0 => {
                request.way.held(self.time.now_ns);
                request.end(Status::SUCCESS, 0, self.time.now_ns);
                count_success(request, Op::Read, association, &self.io.disks);
                let outboxes = (&self.io.arena, &mut self.queues.dirty);
                if !try_respond(id, request, queue, port, outboxes, self.time.now) {
                    self.answer(id);
                }
            }
            Ok(_) => self.acquire(id),
            Err(status) => self.fail_io(id, status),
        }
    }

    /// Takes a request for a capsule whose command was copied, and begins with it.
    pub(super) fn admit(&mut self, capsule: Capsule) {
        let (id, request) = self
            .queues
            .requests
            .take(capsule.qpair, |sqe| *sqe = capsule.sqe);
        request.in_capsule_bytes = capsule.data_bytes;
        request.way = Way::seen(capsule.seen_ns);
        let queue = &mut self.queues.qpairs[capsule.qpair];
        queue.requests += 1;
        if capsule.is_shed() {
            return self.fail_io(id, Status::NAMESPACE_NOT_READY);
        }
        if capsule.data_bytes > 0 {
            request.receive = capsule.slot;
        } else if let Some(slot) = capsule.slot {
            let port = queue.port;
            self.repost(port, slot);
        }
        let nsid = self.nsid_of(&capsule);
        self.note_begun(capsule.qpair, nsid);
        self.begin(id);
    }

    /// Begins with a command.
    fn begin(&mut self, id: RequestId) {
        let request = &mut self.queues.requests[id];
        let queue = &self.queues.qpairs[request.qpair];
        match &queue.association {
            None => self.begin_connect(id),
            Some(association) if association.qid == 0 => self.begin_admin(id),
            Some(association) => {
                match begin_io(request, association, queue.port, &mut self.io.disks) {
                    Ok(_) => self.acquire(id),
                    Err(status) => self.fail_io(id, status),
                }
            }
        }
    }

    /// Answers a command that was parked.
    pub(super) fn complete_late(
        &mut self,
        qpair: QpairId,
        completion: nvme_proto::controller::Completion,
    ) {
        use nvme_proto::wire::U16;
        if !self
            .queues
            .qpairs
            .get(qpair)
            .is_some_and(|queue| queue.is_open())
        {
            return;
        }
        let sqe = Sqe {
            cid: U16::new(completion.cid),
            ..Sqe::new_zeroed()
        };
        let (id, request) = self.queues.requests.take(qpair, |own| *own = sqe);
        request.task = Task::LateCompletion;
        let queue = &mut self.queues.qpairs[qpair];
        queue.requests += 1;
        queue.command_begins();
        self.finish(id, completion.status, completion.result);
    }

    /// Posts a receive slot again at the end of the round.
    #[inline]
    pub(super) fn repost(&mut self, port: usize, slot: u32) {
        // A port that is gone takes its slots with it.
        if let Some(port) = &mut self.queues.ports[port] {
            port.repost(slot);
        }
    }
}
