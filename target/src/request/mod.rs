//! A command on its way through the target.
//!
//! A request is taken when a capsule is accepted and freed when nothing of it
//! is left: the response has arrived, the backend is done, the buffers are back.
//! Its [`Stage`] says who has it meanwhile.

mod door;
mod list;
mod permit;

pub(crate) use door::{Door, Turn};
pub(crate) use list::List;
pub(crate) use permit::Permit;

use cairn_disk::{Arena, BlockIo, Buffer};
use cairn_rdma::Sge;
use nvme_proto::controller::{AdminCommand, AuthenticationRequest, Completion};
use nvme_proto::io::OperationKind;
use nvme_proto::transfer::DataTransfer;
use nvme_proto::wire::{FromZeros, Sqe, Status};

use crate::ids::QpairId;
use crate::metrics::StageTimes;
use crate::order::Ticket;
use crate::work_id::{WorkId, WorkKind};

/// A place in the request table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestId(u32);

impl RequestId {
    /// As an index: dense from 0.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Who has a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// None: it is free.
    Free,
    /// The reactor, in the middle of a call.
    Running,
    /// The line of those that limits do not allow yet.
    AwaitingLimit,
    /// The queue for data buffers.
    AwaitingBuffer,
    /// Its queue pair's queue for READs.
    AwaitingRead,
    /// The Connects and admin commands that the reactor executes next.
    AwaitingReactor,
    /// The Connects that wait for older queues of their host to enter their changes.
    AwaitingCensus,
    /// The thread that computes what authentication takes.
    AwaitingAuthentication,
    /// The device: its RDMA READ is posted, or about to be.
    Reading,
    /// The backend.
    InBackend,
    /// Its disk's queue for flushes or for fallocates, or another flush that stands for it.
    AwaitingTurn,
    /// The timer, after which the backend has it again.
    AwaitingRetry,
    /// An older change of the same blocks, by another association of its host.
    AwaitingOlder,
    /// Its queue pair's queue for SENDs.
    AwaitingSend,
    /// The device: its response is posted, or about to be.
    Sending,
}

/// What a request is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Task {
    /// Not known yet.
    Unparsed,
    /// The Connect of its queue.
    Connect,
    /// A step of the authentication of its queue.
    Authenticate(AuthenticationRequest),
    /// A step of another authentication of its queue, which is live.
    Reauthenticate(AuthenticationRequest),
    /// A command of an admin queue.
    Admin(AdminCommand),
    /// A command of an I/O queue.
    Io(OperationKind),
    /// The late completion of a command that was parked.
    LateCompletion,
}

/// A command on its way.
#[derive(Debug)]
pub(crate) struct Request {
    generation: u16,
    stage: Stage,
    /// Behind it in the list of its stage. Of one that is [`Stage::Sending`]: the request
    /// that ends with it.
    next: Option<RequestId>,
    permit: Option<Permit>,
    /// The queue pair it came on.
    pub(crate) qpair: QpairId,
    /// The command, copied out of its receive slot.
    pub(crate) sqe: Sqe,
    /// The receive slot whose in-capsule data is still needed.
    pub(crate) receive: Option<u32>,
    /// Bytes of in-capsule data that came.
    pub(crate) in_capsule_bytes: u32,
    /// What it is for.
    pub(crate) task: Task,
    /// Where its data comes from or goes to.
    pub(crate) transfer: DataTransfer,
    /// Bytes that it needs for its data, and for its scratch, before it goes on.
    pub(crate) buffer_bytes: (u32, u32),
    /// Bytes of buffers that its host's share has promised it.
    pub(crate) reserved: usize,
    /// The bytes of the disk that the device reads by itself, if it can.
    pub(crate) window: Option<Sge>,
    /// The buffer of its data.
    pub(crate) data: Option<Buffer>,
    /// A second buffer: what a Compare reads from the disk.
    pub(crate) scratch: Option<Buffer>,
    /// The disk it works on, by its place among the reactor's.
    pub(crate) disk: Option<u32>,
    /// Bytes of the disk that it is about.
    pub(crate) disk_bytes: u64,
    /// What the backend does for it: nothing, where the device moves the bytes.
    pub(crate) block: Option<BlockIo>,
    /// Its way there, as planned with `block`, and not to be asked before.
    pub(crate) door: Door,
    /// Its place in the order of its disk, while it has one. It leaves as the disk is done with it.
    pub(crate) ordered: Option<Ticket>,
    /// The reactor's epoch in which it was planned, or decided on again.
    pub(crate) epoch: u32,
    /// How many of several steps are done (ranges, namespaces).
    pub(crate) steps_done: u32,
    /// The subsystem whose time it counts as busy.
    pub(crate) subsystem: Option<u32>,
    /// When it reached each stage.
    pub(crate) times: StageTimes,
    /// How it ends.
    pub(crate) completion: Completion,
    /// Send-queue work requests that its response takes.
    pub(crate) send_work: u8,
    /// Whether the queue is to be closed once the response has arrived.
    pub(crate) close_after: bool,
}

// Panics are functions with arguments by value: what they show then stays in registers.

#[cold]
fn wrong_stage(stage: Stage, from: Stage, to: Stage) -> ! {
    panic!("a request that is {stage:?}, not {from:?}, was to become {to:?}");
}

#[cold]
fn not_free(id: RequestId) -> ! {
    panic!("{id:?} is not free");
}

#[cold]
fn too_late(work: WorkId) -> ! {
    panic!("{work:?} came too late");
}

/// How a command looks that has not ended yet.
const UNFINISHED: Completion = Completion {
    cid: 0,
    status: Status::INTERNAL_ERROR,
    result: 0,
};

impl Request {
    fn free() -> Self {
        Self {
            generation: 0,
            stage: Stage::Free,
            next: None,
            permit: None,
            qpair: QpairId::NONE,
            sqe: Sqe::new_zeroed(),
            receive: None,
            in_capsule_bytes: 0,
            task: Task::Unparsed,
            transfer: DataTransfer::None,
            buffer_bytes: (0, 0),
            reserved: 0,
            window: None,
            data: None,
            scratch: None,
            disk: None,
            disk_bytes: 0,
            block: None,
            door: Door::OPEN,
            ordered: None,
            epoch: 0,
            steps_done: 0,
            subsystem: None,
            times: StageTimes::default(),
            completion: UNFINISHED,
            send_work: 0,
            close_after: false,
        }
    }

    /// Takes on a command. What is held by reference or by count was let go of before
    /// the request was freed ([`Request::release`]); all else is set here.
    #[inline(always)]
    fn begin(&mut self, qpair: QpairId) {
        self.stage = Stage::Running;
        self.permit = Some(Permit::new(self.cid()));
        self.qpair = qpair;
        self.in_capsule_bytes = 0;
        self.task = Task::Unparsed;
        self.times = StageTimes::default();
        self.transfer = DataTransfer::None;
        self.buffer_bytes = (0, 0);
        self.window = None;
        self.disk_bytes = 0;
        self.block = None;
        self.steps_done = 0;
        self.completion = UNFINISHED;
        self.send_work = 0;
        self.close_after = false;
    }

    /// Plans what the backend does for it.
    #[inline(always)]
    pub(crate) fn plan(&mut self, block: BlockIo) {
        self.door = Door::of(block.op);
        self.block = Some(block);
    }

    /// A name for work that is done for it.
    #[inline]
    pub(crate) fn work_id(&self, id: RequestId, kind: WorkKind) -> u64 {
        WorkId::new(id.0, kind, self.generation).encode()
    }

    /// Where `length` bytes of its data lie in local memory: in its buffer in the
    /// arena, for which the device has this key, or on the disk itself.
    #[inline]
    pub(crate) fn local_data(&self, arena: &Arena, arena_lkey: u32, length: u32) -> Sge {
        match &self.data {
            Some(buffer) => Sge {
                addr: arena.span(buffer, length).addr,
                length,
                lkey: arena_lkey,
            },
            None => self.window.expect("data without a buffer has a window"),
        }
    }

    /// CID.
    #[inline]
    pub(crate) fn cid(&self) -> u16 {
        self.sqe.cid.get()
    }

    /// Whether it has buffers, or a promise of some.
    #[inline]
    pub(crate) fn holds_buffers(&self) -> bool {
        self.data.is_some() || self.scratch.is_some() || self.reserved > 0
    }

    /// Who has it.
    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// Hands it to someone, or takes it back (`Running`).
    #[inline]
    pub(crate) fn set_stage(&mut self, from: Stage, to: Stage) {
        if self.stage != from {
            wrong_stage(self.stage, from, to);
        }
        self.stage = to;
    }

    /// Its response is about to be posted. The completion of its SEND ends the one of `before`,
    /// too.
    #[inline]
    pub(crate) fn sends(&mut self, before: Option<RequestId>) {
        self.set_stage(Stage::Running, Stage::Sending);
        self.next = before;
    }

    /// Its response has left, or never will. The result is the request that ends with it.
    #[inline]
    pub(crate) fn sent(&mut self) -> Option<RequestId> {
        self.set_stage(Stage::Sending, Stage::Running);
        self.next.take()
    }

    /// It is known how it ends.
    #[inline]
    pub(crate) fn end(&mut self, status: Status, result: u64, now_ns: u64) {
        self.completion = Completion {
            cid: self.cid(),
            status,
            result,
        };
        self.times.done(now_ns);
    }

    /// Frees it: no room has it any more.
    ///
    /// # Panics
    /// If something of it is left.
    #[inline(always)]
    pub(crate) fn release(&mut self, id: RequestId, free: &mut FreeList) {
        // One look at all of it. What is left is found out only if something is.
        if self.stage != Stage::Running || self.is_held() {
            self.refuse_release(id);
        }
        debug_assert_eq!(
            self.ordered, None,
            "{id:?} has a place in the order of its disk"
        );
        self.stage = Stage::Free;
        self.generation = self.generation.wrapping_add(1);
        free.0.push(id);
    }

    /// Whether something of it is left.
    #[inline(always)]
    fn is_held(&self) -> bool {
        self.permit.is_some()
            | self.next.is_some()
            | self.data.is_some()
            | self.scratch.is_some()
            | self.receive.is_some()
            | self.disk.is_some()
            | self.subsystem.is_some()
            | (self.reserved > 0)
    }

    #[cold]
    fn refuse_release(&self, id: RequestId) -> ! {
        assert_eq!(self.stage, Stage::Running, "{id:?} is with someone");
        assert!(self.permit.is_none(), "{id:?} is unanswered");
        assert_eq!(self.next, None, "{id:?} waits for something");
        panic!("{id:?} has buffers, a share, a receive slot or a disk: {self:?}");
    }

    /// The one end of the command.
    pub(crate) fn take_permit(&mut self) -> Permit {
        self.permit.take().expect("a command ends once")
    }
}

/// The requests of a reactor: their number is the limit on commands in progress.
#[derive(Debug)]
pub(crate) struct RequestTable {
    requests: Vec<Request>,
    free: FreeList,
}

/// A request that was just taken. Its SQE is read straight into it, and then it begins.
#[must_use = "a request that was taken begins"]
pub(crate) struct Taken<'a> {
    id: RequestId,
    request: &'a mut Request,
    free: &'a mut FreeList,
}

impl<'a> Taken<'a> {
    /// Where the SQE goes.
    #[inline(always)]
    pub(crate) fn sqe(&mut self) -> &mut Sqe {
        &mut self.request.sqe
    }

    /// The command of this SQE, which came on this queue pair, begins.
    #[inline(always)]
    pub(crate) fn begin(self, qpair: QpairId) -> (RequestId, &'a mut Request, &'a mut FreeList) {
        self.request.begin(qpair);
        (self.id, self.request, self.free)
    }
}

/// The requests of a table that are free.
#[derive(Debug)]
pub(crate) struct FreeList(Vec<RequestId>);

impl RequestTable {
    /// Room for `capacity` commands in progress.
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            requests: (0..capacity).map(|_| Request::free()).collect(),
            // Backwards, so that the first is used first.
            free: FreeList((0..capacity).rev().map(RequestId).collect()),
        }
    }

    /// Whether all are taken.
    pub(crate) fn is_full(&self) -> bool {
        self.free.0.is_empty()
    }

    /// How many there are.
    pub(crate) fn capacity(&self) -> usize {
        self.requests.len()
    }

    /// How many are free.
    #[inline]
    pub(crate) fn free(&self) -> usize {
        self.free.0.len()
    }

    /// How many are taken.
    pub(crate) fn in_use(&self) -> usize {
        self.requests.len() - self.free.0.len()
    }

    /// No command will be answered any more.
    pub(crate) fn abandon_all(&mut self) {
        let permits = self.requests.iter_mut().filter_map(|it| it.permit.take());
        permits.for_each(Permit::abandoned);
    }

    /// Takes a request for a command.
    ///
    /// # Panics
    /// If all are taken: see [`Self::is_full`].
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Taken<'_> {
        let id = self.free.0.pop().expect("a request is free");
        let request = &mut self.requests[id.index()];
        if request.stage != Stage::Free {
            not_free(id);
        }
        let free = &mut self.free;
        Taken { id, request, free }
    }

    /// A request, and the list that it goes back to.
    #[inline(always)]
    pub(crate) fn entry(&mut self, id: RequestId) -> (&mut Request, &mut FreeList) {
        (&mut self.requests[id.index()], &mut self.free)
    }

    /// Hands a request to someone, or takes it back (`Running`).
    #[inline]
    pub(crate) fn set_stage(&mut self, id: RequestId, from: Stage, to: Stage) {
        self[id].set_stage(from, to);
    }

    /// A name for work that is done for a request.
    pub(crate) fn work_id(&self, id: RequestId, kind: WorkKind) -> u64 {
        self[id].work_id(id, kind)
    }

    /// The request that a completion is about.
    ///
    /// # Panics
    /// If the request has been freed since: it must not be while work is out.
    #[inline]
    pub(crate) fn find(&mut self, work: WorkId) -> RequestId {
        self.find_mut(work).0
    }

    /// The same, and the request itself.
    ///
    /// # Panics
    /// As [`Self::find`].
    #[inline]
    pub(crate) fn find_mut(&mut self, work: WorkId) -> (RequestId, &mut Request) {
        let id = RequestId(work.slot());
        let request = &mut self[id];
        if request.generation != work.generation() {
            too_late(work);
        }
        (id, request)
    }

    /// The request that a completion is about, unless it was freed since.
    pub(crate) fn get(&self, work: WorkId) -> Option<RequestId> {
        let request = self.requests.get(work.slot() as usize)?;
        (request.generation == work.generation()).then_some(RequestId(work.slot()))
    }

    /// The requests that someone has.
    pub(crate) fn taken(&self) -> impl Iterator<Item = RequestId> {
        let taken = |(_, request): &(usize, &Request)| request.stage != Stage::Free;
        let requests = self.requests.iter().enumerate().filter(taken);
        requests.map(|(index, _)| RequestId(index as u32))
    }

    /// The requests of a queue pair that someone has.
    pub(crate) fn of_qpair(&self, qpair: QpairId) -> impl Iterator<Item = RequestId> {
        let of_qpair = move |(_, r): &(usize, &Request)| r.stage != Stage::Free && r.qpair == qpair;
        self.requests
            .iter()
            .enumerate()
            .filter(of_qpair)
            .map(|(index, _)| RequestId(index as u32))
    }
}

impl std::ops::Index<RequestId> for RequestTable {
    type Output = Request;

    #[inline]
    fn index(&self, id: RequestId) -> &Request {
        &self.requests[id.index()]
    }
}

impl std::ops::IndexMut<RequestId> for RequestTable {
    #[inline]
    fn index_mut(&mut self, id: RequestId) -> &mut Request {
        &mut self.requests[id.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table_of_two() -> (RequestTable, RequestId, RequestId) {
        let mut table = RequestTable::new(2);
        let (first, ..) = table.take().begin(QpairId::NONE);
        let (second, ..) = table.take().begin(QpairId::NONE);
        (table, first, second)
    }

    fn release(table: &mut RequestTable, id: RequestId) {
        let (request, free) = table.entry(id);
        request.release(id, free);
    }

    fn end(table: &mut RequestTable, id: RequestId) {
        table[id].take_permit().answered();
        release(table, id);
    }

    #[test]
    fn requests_run_out_and_come_back() {
        let (mut table, first, second) = table_of_two();
        assert!(table.is_full());
        end(&mut table, first);
        assert_eq!(table.in_use(), 1);
        assert_eq!(table.take().begin(QpairId::NONE).0, first);
        end(&mut table, first);
        end(&mut table, second);
        assert_eq!(table.in_use(), 0);
    }

    #[test]
    #[should_panic(expected = "came too late")]
    fn a_late_completion_finds_no_request() {
        let (mut table, first, second) = table_of_two();
        let late = WorkId::decode(table.work_id(first, WorkKind::Send));
        assert_eq!(table.find(late), first);
        end(&mut table, first);
        end(&mut table, second);
        table.find(late);
    }

    #[test]
    #[should_panic(expected = "is unanswered")]
    fn an_unanswered_command_cannot_be_freed() {
        let (mut table, first, second) = table_of_two();
        table[second].take_permit().answered();
        release(&mut table, first);
    }

    #[test]
    #[should_panic(expected = "is with someone")]
    fn a_request_that_the_backend_has_cannot_be_freed() {
        let (mut table, first, second) = table_of_two();
        for id in [first, second] {
            table[id].take_permit().answered();
        }
        table.set_stage(first, Stage::Running, Stage::InBackend);
        release(&mut table, first);
    }
}
