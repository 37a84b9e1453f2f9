//! The end of a request: its data and its response go to the host, in one post.

use std::time::Instant;

use cairn_rdma::{Operation, PostError, RemoteBuffer, SendWork, SgeList, WorkStatus};
use nvme_proto::transfer::DataTransfer;
use nvme_proto::wire::Status;

use super::Reactor;
use super::count::{Wait, count_end, count_way};
use super::port::Port;
use crate::arena::Arena;
use crate::ending::Ending;
use crate::ids::QpairId;
use crate::qpair::QueuePair;
use crate::request::{Request, RequestId, Stage};
use crate::work_id::{WorkId, WorkKind};

/// Work requests of the longest response: WRITE and SEND.
const RESPONSE_WORK: usize = 2;

/// Takes the credits for a response, if the queue pair has as many.
#[inline]
fn claim_send(request: &mut Request, queue: &mut QueuePair) -> bool {
    let to_host = matches!(request.transfer, DataTransfer::ToHost(_));
    let send_work = if to_host { 2 } else { 1 };
    let enough = queue.send_credits >= send_work;
    if enough {
        queue.send_credits -= send_work;
        request.send_work = send_work as u8;
    }
    enough
}

/// Answers a command at the end of the round, unless others of its queue pair wait
/// for that or it has no room or no credits; whether it does.
// Inlined, so that nothing is looked up again on the way of a read that is answered as
// its capsule is seen.
#[inline(always)]
pub(super) fn try_respond(
    id: RequestId,
    request: &mut Request,
    queue: &mut QueuePair,
    port: &Port,
    outboxes: (&Arena, &mut Vec<QpairId>),
    now: Instant,
) -> bool {
    let goes = queue.awaiting_send.is_empty()
        && queue.outbox.has_room(RESPONSE_WORK)
        && claim_send(request, queue);
    if goes {
        respond(id, request, queue, port, outboxes, now);
    }
    goes
}

/// Adds the response of a request, and before it the data, to what its queue pair
/// posts at the end of the round. There are room and credits for that.
#[inline(always)]
fn respond(
    id: RequestId,
    request: &mut Request,
    queue: &mut QueuePair,
    port: &Port,
    (arena, dirty): (&Arena, &mut Vec<QpairId>),
    now: Instant,
) {
    request.set_stage(Stage::Running, Stage::Sending);
    queue.work_posted(now);
    queue.command_ends();
    let cqe = request.completion.cqe(queue.advance_sqhd());
    request.take_permit().answered();
    if queue.outbox.is_empty() {
        dirty.push(request.qpair);
    }
    let lkey = port.arena_lkey();
    if let DataTransfer::ToHost(remote) = request.transfer {
        let write = SendWork {
            id: request.work_id(id, WorkKind::Write),
            op: Operation::Write(RemoteBuffer {
                addr: remote.address,
                rkey: remote.rkey,
            }),
            sges: SgeList::one(request.local_data(arena, lkey, remote.length)),
            signaled: false,
        };
        queue.outbox.push_write(write, remote.length);
    }
    // Also if the command failed: the key is the command's, not its success's.
    let rkey = request.sqe.dptr.invalidate_rkey();
    let op = match rkey.filter(|_| port.limits().send_with_invalidate) {
        Some(rkey) => Operation::SendWithInvalidate { rkey },
        None => Operation::Send,
    };
    queue.outbox.push_other(SendWork {
        id: request.work_id(id, WorkKind::Send),
        op,
        sges: SgeList::one(arena.write_response(id.index(), &cqe, lkey)),
        signaled: true,
    });
}

impl Reactor {
    /// Ends a command: the backend, or whoever it was, is done with it.
    pub(super) fn finish(&mut self, id: RequestId, status: Status, result: u64) {
        let mut request = &mut self.queues.requests[id];
        request.end(status, result, self.time.now_ns);
        let to_host = matches!(request.transfer, DataTransfer::ToHost(_));
        if status != Status::SUCCESS && to_host {
            // Nothing but the response goes to the host.
            request.transfer = DataTransfer::None;
        }
        let keeps_data = status == Status::SUCCESS && to_host;
        if request.receive.is_some() {
            self.release_receive(id);
            request = &mut self.queues.requests[id];
        }
        if !keeps_data && request.holds_buffers() {
            self.release_buffers(id);
            request = &mut self.queues.requests[id];
        }
        let queue = &self.queues.qpairs[request.qpair];
        count_end(request, queue.association.as_ref(), &self.io.disks);
        self.answer(id);
    }

    /// Answers a command whose end is known and counted, once it can be.
    pub(super) fn answer(&mut self, id: RequestId) {
        let qpair = self.queues.requests[id].qpair;
        self.make_room(qpair, RESPONSE_WORK);
        let (request, queue) = (
            &mut self.queues.requests[id],
            &mut self.queues.qpairs[qpair],
        );
        if !queue.is_open() {
            return self.abandon(id);
        }
        let port = self.queues.ports[queue.port].as_ref();
        let port = port.expect("an open queue pair has a port");
        let outboxes = (&self.io.arena, &mut self.queues.dirty);
        if try_respond(id, request, queue, port, outboxes, self.time.now) {
            return;
        }
        self.queues
            .requests
            .push_back(&mut queue.awaiting_send, id, Stage::AwaitingSend);
        self.count_wait(id, Wait::Send);
    }

    /// Posts what a queue pair has credits for: responses first, since they end
    /// something.
    pub(super) fn pump(&mut self, qpair: QpairId) {
        self.pump_sends(qpair);
        self.pump_reads(qpair);
    }

    fn pump_sends(&mut self, qpair: QpairId) {
        loop {
            self.make_room(qpair, RESPONSE_WORK);
            let queue = &mut self.queues.qpairs[qpair];
            let Some(id) = queue.awaiting_send.front() else {
                return;
            };
            if !claim_send(&mut self.queues.requests[id], queue) {
                return;
            }
            self.queues.requests.pop_front(&mut queue.awaiting_send);
            let port = self.queues.ports[queue.port].as_ref();
            let port = port.expect("an open queue pair has a port");
            let request = &mut self.queues.requests[id];
            let outboxes = (&self.io.arena, &mut self.queues.dirty);
            respond(id, request, queue, port, outboxes, self.time.now);
        }
    }

    /// Has room in the outbox for so much work. That may close the queue pair.
    #[inline]
    fn make_room(&mut self, qpair: QpairId, count: usize) {
        if !self.queues.qpairs[qpair].outbox.has_room(count) {
            self.flush_outbox(qpair);
        }
    }

    /// Adds an RDMA READ to what is posted at the end of the round.
    pub(super) fn push_read(&mut self, qpair: QpairId, work: SendWork) {
        self.make_room(qpair, 1);
        let queue = &mut self.queues.qpairs[qpair];
        if queue.outbox.is_empty() {
            self.queues.dirty.push(qpair);
        }
        queue.outbox.push_other(work);
    }

    /// Posts what a queue pair has in its outbox, as one chain.
    pub(super) fn flush_outbox(&mut self, qpair: QpairId) {
        let Some(queue) = self.queues.qpairs.get(qpair) else {
            return;
        };
        if queue.outbox.is_empty() {
            return;
        }
        let outbox = self.queues.qpairs[qpair].outbox.take();
        let queue = &self.queues.qpairs[qpair];
        let posted = match &mut self.queues.ports[queue.port] {
            Some(port) => port.endpoint().post(queue.qp, &outbox),
            None => Err(PostError::Broken),
        };
        match posted {
            Ok(()) => {}
            Err(PostError::Full) => panic!("more posted than there were credits for"),
            // Its event says why. None of the chain will complete: it ends here.
            Err(PostError::Broken) => self.lose_work(&outbox),
        }
        if self.queues.qpairs.get(qpair).is_some() {
            self.queues.qpairs[qpair].outbox.give_back(outbox);
        }
    }

    /// Ends work that was never posted.
    pub(super) fn lose_work(&mut self, chain: &[SendWork]) {
        for work in chain.iter().map(|work| WorkId::decode(work.id)) {
            match work.kind() {
                WorkKind::Read => self.read_ended(work, WorkStatus::Flushed),
                WorkKind::Send => self.send_ended(work, WorkStatus::Flushed),
                // Its SEND ends it.
                WorkKind::Write => {}
                WorkKind::Receive | WorkKind::Block => unreachable!("not in an outbox"),
            }
        }
    }

    /// A SEND ended, well or not: nothing of the request is left.
    pub(super) fn send_ended(&mut self, work: WorkId, status: WorkStatus) {
        let (id, request) = self.queues.requests.find_mut(work);
        request.set_stage(Stage::Sending, Stage::Running);
        let (qpair, close_after) = (request.qpair, request.close_after);
        let queue = &mut self.queues.qpairs[qpair];
        queue.send_credits += u32::from(request.send_work);
        queue.work_returned(self.time.now);
        if !status.is_success() {
            self.work_failed(qpair, WorkKind::Send, status);
        } else if close_after {
            self.close(qpair, Ending::Orderly("its Connect was refused"));
        } else {
            let association = queue.association.as_ref();
            count_way(request, association, &self.io.disks, self.time.now_ns);
            let has_more = request.holds_buffers() || queue.has_waiting();
            if queue.is_open() && !has_more {
                // As `free` does, with all that it would look up at hand.
                queue.requests -= 1;
                self.io.disks.end(request, &mut self.io.ring);
                return self.queues.requests.release(id);
            }
        }
        let queue = &self.queues.qpairs[qpair];
        if queue.is_open() && queue.has_waiting() {
            self.pump(qpair);
        }
        if self.queues.requests[id].holds_buffers() {
            self.release_buffers(id);
        }
        self.free(id);
    }

    /// A WRITE failed; the SEND after it will be flushed.
    pub(super) fn write_failed(&mut self, work: WorkId, status: WorkStatus) {
        assert!(!status.is_success(), "WRITEs are not signaled");
        let id = self.queues.requests.find(work);
        self.work_failed(self.queues.requests[id].qpair, WorkKind::Write, status);
    }

    /// Work on a queue pair failed, so it is broken.
    pub(super) fn work_failed(&mut self, qpair: QpairId, kind: WorkKind, status: WorkStatus) {
        if let Some(port) = &self.queues.ports[self.queues.qpairs[qpair].port] {
            port.counters().work_failed(status);
        }
        match status {
            // Only a consequence: the connection's own event says why.
            WorkStatus::Flushed => self.close_unexplained(qpair),
            _ => self.close(qpair, Ending::Work(kind, status)),
        }
    }

    /// Ends a command whose queue is gone.
    pub(super) fn abandon(&mut self, id: RequestId) {
        self.release_receive(id);
        self.release_buffers(id);
        self.queues.requests[id].take_permit().abandoned();
        self.free(id);
    }

    /// Frees a request of which nothing is left.
    pub(super) fn free(&mut self, id: RequestId) {
        let request = &mut self.queues.requests[id];
        let qpair = request.qpair;
        self.io.disks.end(request, &mut self.io.ring);
        self.queues.requests.release(id);
        let queue = &mut self.queues.qpairs[qpair];
        queue.requests -= 1;
        if !queue.is_open() {
            self.retire_if_done(qpair);
        }
    }
}
