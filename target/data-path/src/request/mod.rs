//! Requests: commands in progress in a reactor.
//!
//! A request ends when its response has arrived, the backend has completed and the buffers are
//! released. The `Stage` of a request determines its owner.

mod free;
mod list;
mod permit;
mod restrictions;

pub(crate) use free::{FreeList, OWN_WORK};
pub(crate) use list::List;
pub(crate) use permit::Permit;
pub(crate) use restrictions::{Restrictions, SerialKind};

use cairn_disk::{Arena, BlockIo, Buffer};
use cairn_rdma::Sge;
use nvme_proto::controller::{AdminCommand, AuthenticationRequest, Completion};
use nvme_proto::io::OperationKind;
use nvme_proto::reservation;
use nvme_proto::transfer::{DataTransfer, SglList};
use nvme_proto::wire::{FromZeros, Sqe, Status};

use crate::ids::QpairId;
use crate::metrics::StageTimes;
use crate::order::Ticket;
use crate::work_id::{WorkId, WorkKind};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestId(u32);

impl RequestId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastResponse {
    RefusedConnect,
    /// A missing proof of identity, or a message out of order.
    FailedAuthentication,
    RefusedJoin,
}

impl LastResponse {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::RefusedConnect => "its Connect was refused",
            Self::FailedAuthentication => "its authentication failed",
            Self::RefusedJoin => "its host has authenticated, and its Connect was refused then",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Free,
    Running,
    AwaitingLimit,
    AwaitingBuffer,
    AwaitingRead,
    AwaitingReactor,
    AwaitingPartner,
    AwaitingCensus,
    AwaitingAuthentication,
    /// The device owns the request: its RDMA READ is posted, or will be in this round.
    Reading,
    /// As [`Self::Sending`], but of WRITEs only.
    Writing,
    InBackend,
    AwaitingTurn,
    AwaitingRetry,
    AwaitingOlder,
    AwaitingSend,
    /// The device owns the request: its response is posted, or will be in this round.
    Sending,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Task {
    Unparsed,
    Connect,
    Authenticate(AuthenticationRequest),
    Reauthenticate(AuthenticationRequest),
    Admin(AdminCommand),
    Reservation(reservation::Request),
    Io(OperationKind),
    LateCompletion,
}

/// Role in a fused Compare and Write. The first request has the buffers of both, and must outlive
/// all transfers of the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fused {
    No,
    First { second: RequestId, compared: bool },
    Second { first: RequestId },
}

impl Fused {
    pub(crate) fn partner(self) -> Option<RequestId> {
        match self {
            Self::No => None,
            Self::First { second, .. } => Some(second),
            Self::Second { first } => Some(first),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Request {
    generation: u16,
    stage: Stage,
    /// Next request in the stage's queue. In [`Stage::Sending`], the previous request, if this
    /// request's SEND completes it.
    next: Option<RequestId>,
    permit: Option<Permit>,
    pub(crate) qpair: QpairId,
    pub(crate) sqe: Sqe,
    pub(crate) receive: Option<u32>,
    pub(crate) in_capsule_bytes: u32,
    pub(crate) task: Task,
    pub(crate) transfer: DataTransfer,
    /// Bytes of the data and scratch buffers needed next.
    pub(crate) buffer_bytes: (u32, u32),
    pub(crate) reserved: usize,
    pub(crate) window: Option<Sge>,
    pub(crate) data: Option<Buffer>,
    pub(crate) scratch: Option<Buffer>,
    pub(crate) disk: Option<u32>,
    pub(crate) disk_bytes: u64,
    /// `None` for commands without operation on the disk's ring.
    pub(crate) block: Option<BlockIo>,
    /// Valid once `block` is set.
    pub(crate) restrictions: Restrictions,
    /// Position in the disk's order, until the disk has completed the change.
    pub(crate) ordered: Option<Ticket>,
    /// Set from the admission of a pair until both commands end.
    pub(crate) fused: Fused,
    pub(crate) epoch: u32,
    pub(crate) steps_done: u32,
    pub(crate) subsystem: Option<u32>,
    pub(crate) times: StageTimes,
    pub(crate) completion: Completion,
    /// Work requests in flight; 0 for a single READ.
    pub(crate) send_work: u8,
    pub(crate) close_after: Option<LastResponse>,
    /// Later commands of the slot reuse the allocation.
    pub(crate) list: Option<Box<SglList>>,
}

// These functions take arguments by value, so that callers can keep them in registers.

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
            restrictions: Restrictions::NONE,
            ordered: None,
            fused: Fused::No,
            epoch: 0,
            steps_done: 0,
            subsystem: None,
            times: StageTimes::default(),
            completion: UNFINISHED,
            send_work: 0,
            close_after: None,
            list: None,
        }
    }

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
        self.close_after = None;
    }

    #[inline(always)]
    pub(crate) fn plan(&mut self, block: BlockIo) {
        self.restrictions = Restrictions::of(block.op);
        self.block = Some(block);
    }

    #[inline]
    pub(crate) fn work_id(&self, id: RequestId, kind: WorkKind) -> u64 {
        WorkId::new(id.0, kind, self.generation).encode()
    }

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

    #[inline(always)]
    pub(crate) fn is_fused(&self) -> bool {
        self.fused != Fused::No
    }

    pub(crate) fn leaves_order(&self) -> bool {
        self.restrictions.is_ordered() && !self.is_fused()
    }

    #[inline]
    pub(crate) fn cid(&self) -> u16 {
        self.sqe.cid.get()
    }

    #[inline]
    pub(crate) fn holds_buffers(&self) -> bool {
        self.data.is_some() || self.scratch.is_some() || self.reserved > 0
    }

    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    #[inline]
    pub(crate) fn set_stage(&mut self, from: Stage, to: Stage) {
        if self.stage != from {
            wrong_stage(self.stage, from, to);
        }
        self.stage = to;
    }

    /// The SEND's completion also completes `before`.
    #[inline]
    pub(crate) fn sends(&mut self, before: Option<RequestId>) {
        self.set_stage(Stage::Running, Stage::Sending);
        self.next = before;
    }

    #[inline]
    pub(crate) fn sent(&mut self) -> Option<RequestId> {
        self.set_stage(Stage::Sending, Stage::Running);
        self.next.take()
    }

    #[inline]
    pub(crate) fn end(&mut self, status: Status, result: u64, now_ns: u64) {
        self.completion = Completion {
            cid: self.cid(),
            status,
            result,
        };
        self.times.done(now_ns);
    }

    #[inline(always)]
    pub(crate) fn release(&mut self, id: RequestId, free: &mut FreeList) {
        if self.stage != Stage::Running || self.is_held() {
            self.refuse_release(id);
        }
        debug_assert_eq!(
            self.ordered, None,
            "{id:?} has a place in the order of its disk"
        );
        debug_assert_eq!(self.fused, Fused::No, "{id:?} has a partner");
        self.stage = Stage::Free;
        self.generation = self.generation.wrapping_add(1);
        free.free.push(id);
    }

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

    pub(crate) fn take_permit(&mut self) -> Permit {
        self.permit.take().expect("a command ends once")
    }
}

#[derive(Debug)]
pub(crate) struct RequestTable {
    requests: Vec<Request>,
    free: FreeList,
}

#[must_use = "a request that was taken begins"]
pub(crate) struct Taken<'a> {
    id: RequestId,
    request: &'a mut Request,
    free: &'a mut FreeList,
}

impl<'a> Taken<'a> {
    #[inline(always)]
    pub(crate) fn sqe(&mut self) -> &mut Sqe {
        &mut self.request.sqe
    }

    #[inline(always)]
    pub(crate) fn begin(self, qpair: QpairId) -> (RequestId, &'a mut Request, &'a mut FreeList) {
        self.request.begin(qpair);
        (self.id, self.request, self.free)
    }
}

impl RequestTable {
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            requests: (0..capacity).map(|_| Request::free()).collect(),
            free: FreeList::new(capacity),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free.free.is_empty()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.requests.len()
    }

    #[inline]
    pub(crate) fn free(&self) -> usize {
        self.free.free.len()
    }

    pub(crate) fn in_use(&self) -> usize {
        self.requests.len() - self.free.free.len()
    }

    pub(crate) fn abandon_all(&mut self) {
        let permits = self.requests.iter_mut().filter_map(|it| it.permit.take());
        permits.for_each(Permit::abandoned);
    }

    #[inline(always)]
    pub(crate) fn take(&mut self) -> Taken<'_> {
        let id = self.free.free.pop().expect("a request is free");
        let request = &mut self.requests[id.index()];
        if request.stage != Stage::Free {
            not_free(id);
        }
        let free = &mut self.free;
        Taken { id, request, free }
    }

    #[inline(always)]
    pub(crate) fn entry(&mut self, id: RequestId) -> (&mut Request, &mut FreeList) {
        (&mut self.requests[id.index()], &mut self.free)
    }

    #[inline]
    pub(crate) fn set_stage(&mut self, id: RequestId, from: Stage, to: Stage) {
        self[id].set_stage(from, to);
    }

    pub(crate) fn work_id(&self, id: RequestId, kind: WorkKind) -> u64 {
        self[id].work_id(id, kind)
    }

    pub(crate) fn fuse(&mut self, first: RequestId, second: RequestId) {
        self[first].fused = Fused::First {
            second,
            compared: false,
        };
        self[second].fused = Fused::Second { first };
    }

    /// Neither request may be at a device or disk. Returns the first and second request, and
    /// whether the Compare succeeded.
    pub(crate) fn separate(&mut self, id: RequestId) -> Option<(RequestId, RequestId, bool)> {
        let partner = self[id].fused.partner()?;
        let (first, second, compared) = match (self[id].fused, self[partner].fused) {
            (Fused::First { compared, .. }, _) => (id, partner, compared),
            (_, Fused::First { compared, .. }) => (partner, id, compared),
            _ => unreachable!("one of a pair is the first"),
        };
        for id in [first, second] {
            self[id].fused = Fused::No;
            if self[id].stage == Stage::AwaitingPartner {
                self.set_stage(id, Stage::AwaitingPartner, Stage::Running);
            }
        }
        Some((first, second, compared))
    }

    /// Panics if the request was freed before the work ended.
    #[inline]
    pub(crate) fn find(&mut self, work: WorkId) -> RequestId {
        self.find_mut(work).0
    }

    #[inline]
    pub(crate) fn find_mut(&mut self, work: WorkId) -> (RequestId, &mut Request) {
        let id = RequestId(work.slot());
        let request = &mut self[id];
        if request.generation != work.generation() {
            too_late(work);
        }
        (id, request)
    }

    pub(crate) fn get(&self, work: WorkId) -> Option<RequestId> {
        let request = self.requests.get(work.slot() as usize)?;
        (request.generation == work.generation()).then_some(RequestId(work.slot()))
    }

    pub(crate) fn taken(&self) -> impl Iterator<Item = RequestId> {
        let taken = |(_, request): &(usize, &Request)| request.stage != Stage::Free;
        let requests = self.requests.iter().enumerate().filter(taken);
        requests.map(|(index, _)| RequestId(index as u32))
    }

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
