//! The data of a request: a buffer for it, and the RDMA READ that brings it.

use std::time::Duration;

use cairn_rdma::{Operation, RemoteBuffer, SendWork, Sge, SgeList, WorkStatus};
use nvme_proto::transfer::DataTransfer;

use super::Reactor;
use super::count::Wait;
use crate::pool::UNIT;
use crate::request::{RequestId, Stage, Task};
use crate::ring::Span;
use crate::work_id::{WorkId, WorkKind};

/// How long the first that waits for buffers has others wait behind it, and then they pass.
pub(super) const PASS_BY: Duration = Duration::from_millis(100);

impl Reactor {
    /// Gets a request the buffers it wants, or has it wait; then goes on.
    /// Whoever came first is served first, however small later wishes are.
    pub(super) fn acquire(&mut self, id: RequestId) {
        if self.requests[id].wants == (0, 0) || self.take_spare(id) {
            self.fetch(id);
        } else if self.claim_share(id) {
            self.acquire_promised(id);
        }
    }

    /// The one command of an admin queue or of a connection to be has a buffer that no
    /// I/O can take.
    fn take_spare(&mut self, id: RequestId) -> bool {
        let request = &mut self.requests[id];
        let is_io = matches!(request.task, Task::Io(_));
        let (data, scratch) = request.wants;
        let small = data as usize <= UNIT && scratch == 0;
        if is_io || !small || self.qpairs[request.qpair].requests > 1 {
            return false;
        }
        request.data = self.arena.take_spare();
        request.data.is_some()
    }

    /// Gets a request its buffers, once they are within its host's share.
    pub(super) fn acquire_promised(&mut self, id: RequestId) {
        let first = self.awaiting_buffer.is_empty() || self.others_pass();
        if first && self.try_acquire(id) {
            self.fetch(id);
        } else {
            self.count_wait(id, Wait::Pool);
            self.requests
                .push_back(&mut self.awaiting_buffer, id, Stage::AwaitingBuffer);
        }
    }

    /// Serves those that wait for buffers.
    pub(super) fn serve_buffers(&mut self) {
        while let Some(id) = self.awaiting_buffer.front() {
            if !self.try_acquire(id) {
                self.buffers_short.get_or_insert(self.now);
                return;
            }
            self.buffers_short = None;
            self.requests.pop_front(&mut self.awaiting_buffer);
            self.fetch(id);
        }
        self.buffers_short = None;
    }

    /// Whether others may pass by the first that waits for a stretch. If what it needs is
    /// not free for long, somebody who hangs has it; but if others passed by for ever, it
    /// would never be. So by turns.
    fn others_pass(&self) -> bool {
        self.buffers_short.is_some_and(|since| {
            let turns = self.now.duration_since(since).as_nanos() / PASS_BY.as_nanos();
            turns % 2 == 1
        })
    }

    /// Serves those behind the first that waits for buffers, when it is their turn; whether
    /// there was anyone.
    pub(super) fn pass_by(&mut self) -> bool {
        if self.awaiting_buffer.is_empty() || !self.others_pass() {
            return false;
        }
        let (mut waiting, mut served) = (std::mem::take(&mut self.awaiting_buffer), Vec::new());
        while let Some(id) = self.requests.pop_front(&mut waiting) {
            if self.try_acquire(id) {
                served.push(id);
            } else {
                self.requests
                    .push_back(&mut self.awaiting_buffer, id, Stage::AwaitingBuffer);
            }
        }
        for &id in &served {
            self.fetch(id);
        }
        !served.is_empty()
    }

    /// Both buffers or none: a request that held one while it waits for the
    /// other could wait for ever.
    fn try_acquire(&mut self, id: RequestId) -> bool {
        let (data, scratch) = self.requests[id].wants;
        let pool = self.arena.pool();
        let data = match data {
            0 => None,
            length => match pool.take(length as usize) {
                Some(buffer) => Some(buffer),
                None => return false,
            },
        };
        if scratch > 0 {
            let Some(buffer) = pool.take(scratch as usize) else {
                if let Some(data) = data {
                    pool.give(data);
                }
                return false;
            };
            self.requests[id].scratch = Some(buffer);
        }
        self.requests[id].data = data;
        true
    }

    /// Brings the data from the host, if there is any, and goes on.
    fn fetch(&mut self, id: RequestId) {
        self.requests[id].way.held(self.now_ns);
        match self.requests[id].transfer {
            DataTransfer::FromHost(_) => {
                let qpair = self.requests[id].qpair;
                let queue = &mut self.qpairs[qpair];
                let must_wait = !queue.may_read();
                self.requests
                    .push_back(&mut queue.awaiting_read, id, Stage::AwaitingRead);
                if must_wait {
                    return self.count_wait(id, Wait::Read);
                }
                self.pump_reads(qpair);
            }
            DataTransfer::InCapsule(_) if self.requests[id].data.is_some() => {
                // It lies where the disk cannot take it from: a rare copy.
                let (from, to) = (self.capsule_span(id), self.data_span(id));
                self.ring.copy_span(from, to);
                self.release_receive(id);
                self.execute(id);
            }
            DataTransfer::None | DataTransfer::ToHost(_) | DataTransfer::InCapsule(_) => {
                self.execute(id);
            }
        }
    }

    /// Posts the READs that a queue pair has credits for.
    pub(super) fn pump_reads(&mut self, qpair: crate::ids::QpairId) {
        loop {
            let queue = &mut self.qpairs[qpair];
            if !queue.may_read() {
                return;
            }
            let Some(id) = self.requests.pop_front(&mut queue.awaiting_read) else {
                return;
            };
            queue.read_credits -= 1;
            queue.send_credits -= 1;
            queue.work_posted(self.now);
            let port = queue.port;
            let DataTransfer::FromHost(remote) = self.requests[id].transfer else {
                unreachable!("only data from the host is READ");
            };
            let local = self.local_data(id, port, remote.length);
            let work = SendWork {
                id: self.requests.work_id(id, WorkKind::Read),
                op: Operation::Read(RemoteBuffer {
                    addr: remote.address,
                    rkey: remote.rkey,
                }),
                sges: SgeList::one(local),
                signaled: true,
            };
            self.requests.set_stage(id, Stage::Running, Stage::Reading);
            self.push_read(qpair, work);
        }
    }

    /// An RDMA READ ended, well or not.
    pub(super) fn read_ended(&mut self, work: WorkId, status: WorkStatus) {
        let id = self.requests.find(work);
        let qpair = self.requests[id].qpair;
        self.requests.set_stage(id, Stage::Reading, Stage::Running);
        self.requests[id].way.fetched(self.now_ns);
        let queue = &mut self.qpairs[qpair];
        queue.read_credits += 1;
        queue.send_credits += 1;
        queue.work_returned(self.now);
        if !status.is_success() {
            self.work_failed(qpair, WorkKind::Read, status);
        }
        let queue = &self.qpairs[qpair];
        if queue.is_open() && queue.is_over(self.now_ns) {
            self.expire(qpair);
        }
        if self.qpairs[qpair].is_open() {
            self.pump(qpair);
            self.execute(id);
        } else {
            self.abandon(id);
        }
    }

    /// Where the data of a request lies in local memory, for the device of `port`.
    fn local_data(&self, id: RequestId, port: usize, length: u32) -> Sge {
        let request = &self.requests[id];
        request.local_data(&self.arena, self.port(port).arena_lkey(), length)
    }

    /// The data buffer of a request, as long as was wanted.
    pub(super) fn data_span(&self, id: RequestId) -> Span {
        let request = &self.requests[id];
        let buffer = request
            .data
            .as_ref()
            .expect("a request that waits for a buffer gets it");
        self.arena.span(buffer, request.wants.0)
    }

    /// The second buffer of a request.
    pub(super) fn scratch_span(&self, id: RequestId) -> Span {
        let request = &self.requests[id];
        let buffer = request
            .scratch
            .as_ref()
            .expect("a request that waits for a buffer gets it");
        self.arena.span(buffer, request.wants.1)
    }

    /// The in-capsule data of a request, where it landed.
    pub(super) fn capsule_span(&self, id: RequestId) -> Span {
        let request = &self.requests[id];
        let DataTransfer::InCapsule(slice) = request.transfer else {
            unreachable!("only in-capsule data lies in a capsule");
        };
        let slot = request
            .receive
            .expect("the slot is kept while its data is needed");
        let port = self.port(self.qpairs[request.qpair].port);
        port.slots().span(slot, slice.offset, slice.length)
    }

    /// The host's data of a request, wherever it is by now.
    pub(super) fn input_span(&self, id: RequestId) -> Span {
        match self.requests[id].data {
            Some(_) => self.data_span(id),
            None => self.capsule_span(id),
        }
    }

    /// Gives the receive slot back, once nobody needs its data.
    pub(super) fn release_receive(&mut self, id: RequestId) {
        if let Some(slot) = self.requests[id].receive.take() {
            let port = self.qpairs[self.requests[id].qpair].port;
            self.repost(port, slot);
        }
    }

    /// Gives the buffers back.
    pub(super) fn release_buffers(&mut self, id: RequestId) {
        let request = &mut self.requests[id];
        if let Some(buffer) = request.data.take() {
            self.arena.give(buffer);
        }
        if let Some(buffer) = request.scratch.take() {
            self.arena.pool().give(buffer);
        }
        if request.reserved > 0 {
            self.return_share(id);
        }
    }

    /// All that a request needs is there: does what it asks for.
    fn execute(&mut self, id: RequestId) {
        match self.requests[id].task {
            Task::Connect => self.execute_connect(id),
            Task::Admin(command) => self.execute_admin(id, &command),
            Task::Io(operation) => self.execute_io(id, operation),
            Task::Unparsed | Task::LateCompletion => unreachable!("these have no data"),
        }
    }
}
