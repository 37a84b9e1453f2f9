//! The end of a request: its data and its response go to the host, in one post.

use cairn_rdma::{Operation, PostError, RemoteBuffer, SendWork, SgeList, WorkStatus};
use nvme_proto::controller::Completion;
use nvme_proto::transfer::DataTransfer;
use nvme_proto::wire::Status;

use super::Reactor;
use super::count::Wait;
use crate::qpair::{Ending, Outbox, QpairId};
use crate::request::{RequestId, Stage};
use crate::work_id::{WorkId, WorkKind};

/// Work requests of the longest response: WRITE and SEND.
const RESPONSE_WORK: usize = 2;

impl Reactor {
    /// Ends a command: the backend, or whoever it was, is done with it.
    pub(super) fn finish(&mut self, id: RequestId, status: Status, result: u64) {
        let request = &mut self.requests[id];
        let cid = request.cid();
        request.completion = Completion {
            cid,
            status,
            result,
        };
        let to_host = matches!(request.transfer, DataTransfer::ToHost(_));
        if status != Status::SUCCESS && to_host {
            // Nothing but the response goes to the host.
            request.transfer = DataTransfer::None;
        }
        let keeps_data = matches!(request.transfer, DataTransfer::ToHost(_));
        let keeps_receive = request.receive.is_some();
        self.count_end(id);
        if keeps_receive {
            self.release_receive(id);
        }
        if !keeps_data {
            self.release_buffers(id);
        }
        let qpair = self.requests[id].qpair;
        let queue = &mut self.qpairs[qpair];
        if !queue.is_open() {
            return self.abandon(id);
        }
        if queue.awaiting_send.is_empty() && self.claim_send(id, qpair) {
            return self.post_response(id, qpair);
        }
        let queue = &mut self.qpairs[qpair];
        self.requests
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
        while let Some(id) = self.qpairs[qpair].awaiting_send.front()
            && self.claim_send(id, qpair)
        {
            let queue = &mut self.qpairs[qpair];
            self.requests.pop_front(&mut queue.awaiting_send);
            self.post_response(id, qpair);
        }
    }

    /// Takes the credits for a response, if the queue pair has as many.
    #[inline]
    fn claim_send(&mut self, id: RequestId, qpair: QpairId) -> bool {
        let (request, queue) = (&mut self.requests[id], &mut self.qpairs[qpair]);
        let to_host = matches!(request.transfer, DataTransfer::ToHost(_));
        let send_work = if to_host { 2 } else { 1 };
        let enough = queue.send_credits >= send_work;
        if enough {
            queue.send_credits -= send_work;
            request.send_work = send_work as u8;
        }
        enough
    }

    fn post_response(&mut self, id: RequestId, qpair: QpairId) {
        self.make_room(qpair, RESPONSE_WORK);
        self.requests.set_stage(id, Stage::Running, Stage::Sending);
        let (request, queue) = (&mut self.requests[id], &mut self.qpairs[qpair]);
        let port = self.ports[queue.port].as_ref();
        let port = port.expect("an open queue pair has a port");
        queue.work_posted(self.now);
        queue.command_ends();
        let cqe = request.completion.cqe(queue.advance_sqhd());
        request.take_permit().answered();
        // Also if the command failed: the key is the command's, not its success's.
        let rkey = request.sqe.dptr.invalidate_rkey();
        let op = match rkey.filter(|_| port.limits().send_with_invalidate) {
            Some(rkey) => Operation::SendWithInvalidate { rkey },
            None => Operation::Send,
        };
        let lkey = port.arena_lkey();
        let response = self.arena.write_response(id.index(), &cqe, lkey);
        let send = SendWork {
            id: request.work_id(id, WorkKind::Send),
            op,
            sges: SgeList::one(response),
            signaled: true,
        };
        if queue.outbox.is_empty() {
            self.dirty.push(qpair);
        }
        if let DataTransfer::ToHost(remote) = request.transfer {
            let data = request.local_data(&self.arena, lkey, remote.length);
            let write = SendWork {
                id: request.work_id(id, WorkKind::Write),
                op: Operation::Write(RemoteBuffer {
                    addr: remote.address,
                    rkey: remote.rkey,
                }),
                sges: SgeList::one(data),
                signaled: false,
            };
            queue.outbox.push(&[write]);
        }
        queue.outbox.push(&[send]);
    }

    /// Has room in the outbox for so much work.
    #[inline]
    fn make_room(&mut self, qpair: QpairId, count: usize) {
        if self.qpairs[qpair].outbox.len() + count > Outbox::MAX {
            self.flush_outbox(qpair);
        }
    }

    /// Adds to what is posted at the end of the round.
    pub(super) fn push_work(&mut self, qpair: QpairId, chain: &[SendWork]) {
        self.make_room(qpair, chain.len());
        let queue = &mut self.qpairs[qpair];
        if queue.outbox.is_empty() {
            self.dirty.push(qpair);
        }
        queue.outbox.push(chain);
    }

    /// Posts what a queue pair has in its outbox, as one chain.
    pub(super) fn flush_outbox(&mut self, qpair: QpairId) {
        let Some(queue) = self.qpairs.get(qpair) else {
            return;
        };
        if queue.outbox.is_empty() {
            return;
        }
        let outbox = self.qpairs[qpair].outbox.take();
        let queue = &self.qpairs[qpair];
        let posted = match &mut self.ports[queue.port] {
            Some(port) => port.endpoint().post(queue.qp, &outbox),
            None => Err(PostError::Broken),
        };
        match posted {
            Ok(()) => {}
            Err(PostError::Full) => panic!("more posted than there were credits for"),
            // Its event says why. None of the chain will complete: it ends here.
            Err(PostError::Broken) => self.lose_work(&outbox),
        }
        if self.qpairs.get(qpair).is_some() {
            self.qpairs[qpair].outbox.give_back(outbox);
        }
    }

    /// Ends work that was never posted.
    pub(super) fn lose_work(&mut self, chain: &[SendWork]) {
        for work in chain.iter().map(|work| WorkId::decode(work.id)) {
            match work.kind {
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
        let id = self.requests.find(work);
        self.requests.set_stage(id, Stage::Sending, Stage::Running);
        let request = &self.requests[id];
        let (qpair, close_after) = (request.qpair, request.close_after);
        let queue = &mut self.qpairs[qpair];
        queue.send_credits += u32::from(request.send_work);
        queue.work_returned(self.now);
        if !status.is_success() {
            self.work_failed(qpair, WorkKind::Send, status);
        } else if close_after {
            self.close(qpair, Ending::Orderly("its Connect was refused"));
        } else {
            self.count_way(id);
        }
        let queue = &self.qpairs[qpair];
        if queue.is_open() && queue.has_waiting() {
            self.pump(qpair);
        }
        if self.requests[id].holds_buffers() {
            self.release_buffers(id);
        }
        self.free(id);
    }

    /// A WRITE failed; the SEND after it will be flushed.
    pub(super) fn write_failed(&mut self, work: WorkId, status: WorkStatus) {
        assert!(!status.is_success(), "WRITEs are not signaled");
        let id = self.requests.find(work);
        self.work_failed(self.requests[id].qpair, WorkKind::Write, status);
    }

    /// Work on a queue pair failed, so it is broken.
    pub(super) fn work_failed(&mut self, qpair: QpairId, kind: WorkKind, status: WorkStatus) {
        if let Some(port) = &self.ports[self.qpairs[qpair].port] {
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
        self.requests[id].take_permit().abandoned();
        self.free(id);
    }

    /// Frees a request of which nothing is left.
    #[inline]
    pub(super) fn free(&mut self, id: RequestId) {
        let request = &mut self.requests[id];
        let qpair = request.qpair;
        let queue = &mut self.qpairs[qpair];
        if std::mem::take(&mut request.counted_busy) {
            let association = queue.association.as_ref();
            let subsystem = &association.expect("an I/O queue is connected").subsystem;
            let busy_ns = self.disks.io_ends(subsystem.id, self.now_ns);
            if busy_ns > 0 {
                subsystem.counters(self.index).busy_ns.add(busy_ns);
            }
        }
        if let Some(disk) = request.disk.take() {
            self.disks.leave(disk, &mut self.ring);
        }
        self.requests.release(id);
        queue.requests -= 1;
        if !queue.is_open() {
            self.retire_if_done(qpair);
        }
    }
}
