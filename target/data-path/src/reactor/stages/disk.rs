//! Stage 5: execution by the disk. A command completes at once, or waits for the ring
//! ([`Stage::InBackend`], until [`step_ended`]), for other operations
//! ([`serial_queues`](crate::reactor::queueing::serial_queues)) or for a retry
//! ([`retry`](crate::reactor::retry)).

use cairn_disk::{BlockIo, BlockOp, Errno, Hints, Progress, Span};
use nvme_proto::io::{
    DATASET_RANGE_BYTES, DATASET_RANGES_MAX, DatasetRanges, FlushScope, OperationKind,
};
use nvme_proto::transfer::DataTransfer;
use nvme_proto::wire::Status;
use nvme_proto::wire::status::SCT_MEDIA;

use super::decisions;
use super::disk_errors::{
    OVERTAKEN, is_difference, is_protection_error, report_failure, status_of,
};
use super::respond;
use super::sent;
use super::turns::{leave, must_wait};
use crate::order::Arrival;
use crate::reactor::command::{Command, Stop};
use crate::reactor::copying::{self, Next};
use crate::reactor::count;
use crate::reactor::io::Io;
use crate::reactor::ordering;
use crate::reactor::queues::Queues;
use crate::reactor::time::Now;
use crate::request::{Fused, RequestId, SerialKind, Stage, Task};
use crate::work_id::{WorkId, WorkKind};

#[inline(always)]
pub(in crate::reactor) fn pass(command: Command<'_>, io: &mut Io, now: &Now) -> Stop {
    if command.request.window.is_some() {
        return respond::pass(command, io, now, Status::SUCCESS, 0);
    }
    Stop::Disk
}

pub(in crate::reactor) fn enter(queues: &mut Queues, io: &mut Io, now: &Now, id: RequestId) {
    match queues.requests[id].task {
        Task::Io(kind) => execute_io(queues, io, now, id, kind),
        Task::Connect
        | Task::Authenticate(_)
        | Task::Reauthenticate(_)
        | Task::Admin(_)
        | Task::Reservation(_) => {
            queues.execute_later(id);
        }
        Task::Unparsed | Task::LateCompletion => unreachable!("these have no data"),
    }
}

fn execute_io(queues: &mut Queues, io: &mut Io, now: &Now, id: RequestId, kind: OperationKind) {
    let request = &queues.requests[id];
    let span = match kind {
        OperationKind::Compare if request.is_fused() => return part_arrived(queues, io, now, id),
        OperationKind::Compare => return compare(queues, io, now, id),
        OperationKind::Read | OperationKind::Write => match (&request.data, request.transfer) {
            (Some(_), _) => Some(io.data_span(request)),
            (None, DataTransfer::InCapsule(_)) => Some(queues.capsule_span(id)),
            (None, _) if request.is_fused() => return part_arrived(queues, io, now, id),
            (None, _) => unreachable!("without a window data needs a buffer"),
        },
        OperationKind::Verify if request.data.is_some() => Some(io.data_span(request)),
        OperationKind::Verify | OperationKind::WriteZeroes | OperationKind::WriteUncorrectable => {
            None
        }
        OperationKind::Flush(FlushScope::Namespace) => {
            queues.requests[id].plan(BlockIo::new(BlockOp::Flush, 0, 0, None));
            None
        }
        OperationKind::Flush(FlushScope::All) => return flush_all(queues, io, now, id),
        OperationKind::DatasetManagement { deallocate: true } => {
            return deallocate(queues, io, now, id);
        }
        OperationKind::DatasetManagement { deallocate: false } => {
            return advise(queues, io, now, id);
        }
        OperationKind::Copy => return copy(queues, io, now, id),
    };
    begin(queues, io, now, id, span);
}

/// Executes a fused pair once both commands' data is in the buffer of the first.
#[cold]
pub(in crate::reactor) fn part_arrived(queues: &mut Queues, io: &mut Io, now: &Now, id: RequestId) {
    let requests = &mut queues.requests;
    requests.set_stage(id, Stage::Running, Stage::AwaitingPartner);
    let (first, second) = match requests[id].fused {
        Fused::First { second, .. } => (id, second),
        Fused::Second { first } => (first, id),
        Fused::No => unreachable!("a part belongs to a pair"),
    };
    let has_arrived = |id| requests[id].stage() == Stage::AwaitingPartner;
    if has_arrived(first) && has_arrived(second) {
        requests.set_stage(first, Stage::AwaitingPartner, Stage::Running);
        compare(queues, io, now, first);
    }
}

fn compare(queues: &mut Queues, io: &mut Io, now: &Now, id: RequestId) {
    ordering::exclude(queues, io, id);
    let request = &queues.requests[id];
    let span = match &request.scratch {
        Some(_) => io.scratch_span(request),
        None => ordering::input_span(queues, io, id),
    };
    begin(queues, io, now, id, Some(span));
}

fn compared(queues: &mut Queues, io: &mut Io, now: &Now, id: RequestId) {
    if queues.requests[id].scratch.is_some() && !matches(queues, io, id) {
        return respond::fail(queues, io, now, id, Status::COMPARE_FAILURE);
    }
    let Fused::First { second, .. } = queues.requests[id].fused else {
        return respond::finish(queues, io, now, id, Status::SUCCESS, 0);
    };
    // The Write takes over the pair's ticket in the order of the disk until the Write ends.
    let [_, span] = io.pair_spans(&queues.requests[id]);
    let requests = &mut queues.requests;
    requests[second].ordered = requests[id].ordered.take();
    requests[id].fused = Fused::First {
        second,
        compared: true,
    };
    requests.set_stage(id, Stage::Running, Stage::AwaitingPartner);
    requests.set_stage(second, Stage::AwaitingPartner, Stage::Running);
    begin(queues, io, now, second, Some(span));
}

pub(in crate::reactor) fn begin(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    id: RequestId,
    span: Option<Span>,
) {
    let handed = start(queues, io, id, span);
    go_on(queues, io, now, id, handed);
}

#[derive(Clone, Copy)]
enum Handed {
    UnderWay,
    Done(Result<(), Errno>),
    Refused(Status),
}

fn go_on(queues: &mut Queues, io: &mut Io, now: &Now, id: RequestId, handed: Handed) {
    match handed {
        Handed::UnderWay => {}
        Handed::Done(result) => ended(queues, io, now, id, result),
        Handed::Refused(status) => {
            ordering::leave_at(queues, io, id);
            leave(queues, io, id);
            respond::fail(queues, io, now, id, status);
        }
    }
}

fn start(queues: &mut Queues, io: &mut Io, id: RequestId, span: Option<Span>) -> Handed {
    let request = &mut queues.requests[id];
    request.block.as_mut().expect("block I/O is planned").span = span;
    if request.restrictions.is_none() {
        return hand_over(queues, io, id);
    }
    start_by_door(queues, io, id)
}

#[cold]
fn start_by_door(queues: &mut Queues, io: &mut Io, id: RequestId) -> Handed {
    let restrictions = queues.requests[id].restrictions;
    if restrictions.is_ordered() {
        match ordering::arrive(queues, io, id, false) {
            Arrival::Go => {}
            Arrival::Wait => {
                io.older.add(&mut queues.requests, id);
                return Handed::UnderWay;
            }
            Arrival::Overtaken => return Handed::Done(Err(OVERTAKEN)),
        }
    }
    if must_wait(queues, io, id, restrictions) {
        return Handed::UnderWay;
    }
    hand_over_restricted(queues, io, id)
}

fn hand_over_restricted(queues: &mut Queues, io: &mut Io, id: RequestId) -> Handed {
    let handed = hand_over(queues, io, id);
    if matches!(handed, Handed::Done(_)) && queues.requests[id].leaves_order() {
        ordering::leave_at(queues, io, id);
    }
    handed
}

fn hand_over(queues: &mut Queues, io: &mut Io, id: RequestId) -> Handed {
    if queues.requests[id].epoch != io.disks.epoch()
        && let Err(status) = decide_again(queues, io, id)
    {
        return Handed::Refused(status);
    }
    let request = &mut queues.requests[id];
    let tag = request.work_id(id, WorkKind::Block);
    let disk = &mut io.disks[request.disk.expect("block I/O has a disk")];
    let block = request.block.as_mut().expect("block I/O is planned");
    if block.op.changes() {
        io.ring
            .set_lease(queues.qpairs[request.qpair].lease_end_ns());
    }
    let backend = &disk.namespace.backend;
    let progress = backend.begin(block, &mut io.ring, disk.file, tag);
    if let Progress::Done(result) = progress {
        return Handed::Done(result);
    }
    if let Some(kind) = request.restrictions.serial_kind() {
        disk.depth_queues.serial.begins(kind);
    }
    request.set_stage(Stage::Running, Stage::InBackend);
    Handed::UnderWay
}

#[cold]
pub(in crate::reactor) fn decide_again(
    queues: &mut Queues,
    io: &Io,
    id: RequestId,
) -> Result<(), Status> {
    let Queues {
        requests, qpairs, ..
    } = queues;
    let request = &mut requests[id];
    let association = qpairs[request.qpair].association.as_ref();
    let association = association.expect("an I/O queue is connected");
    decisions::renew(request, association, &io.disks)
}

pub(in crate::reactor) fn step_ended(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    work: WorkId,
    result: Result<u32, i32>,
) {
    let tag = work.encode();
    let (id, request) = queues.requests.find_mut(work);
    assert_eq!(request.stage(), Stage::InBackend, "{id:?}");
    let disk = request.disk.expect("block I/O has a disk");
    let block = request.block.as_mut().expect("block I/O is planned");
    let queue = &queues.qpairs[request.qpair];
    let is_open = queue.is_open();
    if !is_open {
        // The host is gone, and the device's memory may be unmapped.
        block.stop();
    }
    if block.op.changes() {
        io.ring.set_lease(queue.lease_end_ns());
    }
    let (backend, file) = (io.disks[disk].backend(), io.disks[disk].file);
    let progress = backend.resume(block, result, &mut io.ring, file, tag);
    let (stopped, by_cancel) = (block.is_stopped(), block.is_cancelled());
    let result = match progress {
        // An abort also ends a Copy between its steps.
        Progress::Done(Ok(())) if stopped && copying::is_unfinished(request) => {
            Some(Err(Errno(libc::ECANCELED)))
        }
        Progress::Done(result) => Some(result),
        Progress::Pending => return,
        Progress::Later => None,
    };
    if !request.restrictions.is_none() {
        went_out(queues, io, now, id, result);
    }
    let request = &mut queues.requests[id];
    let Some(result) = result else {
        return io.retries.add(request, id, now.at);
    };
    request.set_stage(Stage::InBackend, Stage::Running);
    let cancelled = stopped && result == Err(Errno(libc::ECANCELED));
    if !is_open {
        sent::abandon(queues, io, id);
    } else if cancelled && (by_cancel || io.aborts.has(tag)) {
        ordering::leave_at(queues, io, id);
        respond::finish(queues, io, now, id, Status::ABORT_REQUESTED, 0);
    } else {
        ended(queues, io, now, id, result);
    }
    if stopped {
        io.aborts.answer(tag, cancelled);
    }
}

pub(in crate::reactor) fn ended(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    id: RequestId,
    result: Result<(), Errno>,
) {
    if let Err(errno) = result {
        ordering::leave_at(queues, io, id);
        if errno == OVERTAKEN {
            return respond::fail(queues, io, now, id, Status::ANA_TRANSITION);
        }
        // An operation refused at once was counted against the depth limit, too.
        leave(queues, io, id);
        if is_difference(errno) {
            return respond::fail(queues, io, now, id, Status::COMPARE_FAILURE);
        }
        return fail(queues, io, now, id, errno);
    }
    let Task::Io(kind) = queues.requests[id].task else {
        unreachable!("only I/O commands have block I/O")
    };
    match kind {
        OperationKind::Compare => compared(queues, io, now, id),
        OperationKind::Flush(FlushScope::All) => flush_all(queues, io, now, id),
        OperationKind::DatasetManagement { deallocate: true } => deallocate(queues, io, now, id),
        OperationKind::Copy => copy(queues, io, now, id),
        _ => respond::finish(queues, io, now, id, Status::SUCCESS, 0),
    }
}

fn flush_all(queues: &mut Queues, io: &mut Io, now: &Now, id: RequestId) {
    loop {
        io.leave_disk(&mut queues.requests[id]);
        let association = queues.association(id);
        let passed = queues.requests[id].steps_done;
        let Some((passed, disk)) = io.disks.next(association, passed) else {
            return respond::finish(queues, io, now, id, Status::SUCCESS, 0);
        };
        let checked = io.disks[disk].check_access(&association.controller);
        let checked = checked.and_then(|()| {
            let kind = OperationKind::Flush(FlushScope::All);
            io.disks[disk].check_reservation(&association.controller, kind)
        });
        if let Err(status) = checked {
            return respond::fail(queues, io, now, id, status);
        }
        io.disks.enter(disk);
        let request = &mut queues.requests[id];
        request.steps_done = passed;
        request.disk = Some(disk);
        request.plan(BlockIo::new(BlockOp::Flush, 0, 0, None));
        match start(queues, io, id, None) {
            Handed::UnderWay => return,
            Handed::Done(Ok(())) => {}
            Handed::Done(Err(errno)) => return fail(queues, io, now, id, errno),
            refused => return go_on(queues, io, now, id, refused),
        }
    }
}

#[inline(never)]
fn copy_ranges<'a>(
    queues: &Queues,
    io: &Io,
    id: RequestId,
    bytes: &'a mut [u8; DATASET_RANGES_MAX * DATASET_RANGE_BYTES],
) -> &'a [u8] {
    let data = &mut bytes[..queues.requests[id].transfer.length() as usize];
    io.ring.peek(ordering::input_span(queues, io, id), data);
    data
}

#[cold]
fn deallocate(queues: &mut Queues, io: &mut Io, now: &Now, id: RequestId) {
    let mut bytes = [0; DATASET_RANGES_MAX * DATASET_RANGE_BYTES];
    let data = copy_ranges(queues, io, id, &mut bytes);
    let disk = queues.requests[id].disk;
    let view = io.disks[disk.expect("a command with ranges has a disk")].view;
    let ranges = match DatasetRanges::parse(data, &view) {
        Ok(ranges) => ranges,
        Err(status) => {
            ordering::leave_at(queues, io, id);
            return respond::fail(queues, io, now, id, status);
        }
    };
    match ordering::arrive_with(queues, io, id, &ranges) {
        Arrival::Go => {}
        Arrival::Wait => return io.older.add(&mut queues.requests, id),
        Arrival::Overtaken => return ended(queues, io, now, id, Err(OVERTAKEN)),
    }
    for range in ranges.iter().skip(queues.requests[id].steps_done as usize) {
        let (offset, length) = (range.slba << view.lbads, view.bytes(range.blocks));
        let request = &mut queues.requests[id];
        request.steps_done += 1;
        request.plan(BlockIo::new(BlockOp::Deallocate, offset, length, None));
        match start(queues, io, id, None) {
            Handed::UnderWay => return,
            Handed::Done(Ok(())) => {}
            Handed::Done(Err(errno)) => return ended(queues, io, now, id, Err(errno)),
            refused => return go_on(queues, io, now, id, refused),
        }
    }
    ordering::leave_at(queues, io, id);
    respond::finish(queues, io, now, id, Status::SUCCESS, 0);
}

#[cold]
fn copy(queues: &mut Queues, io: &mut Io, now: &Now, id: RequestId) {
    loop {
        let span = match copying::next(queues, io, id) {
            Next::Start(span) => span,
            Next::Waits => return,
            Next::Overtaken => return ended(queues, io, now, id, Err(OVERTAKEN)),
            Next::Done(status) => {
                ordering::leave_at(queues, io, id);
                return match status.is_success() {
                    true => respond::finish(queues, io, now, id, status, 0),
                    false => respond::fail(queues, io, now, id, status),
                };
            }
        };
        match start(queues, io, id, Some(span)) {
            Handed::Done(Ok(())) => {}
            handed => return go_on(queues, io, now, id, handed),
        }
    }
}

#[cold]
fn advise(queues: &mut Queues, io: &mut Io, now: &Now, id: RequestId) {
    let mut bytes = [0; DATASET_RANGES_MAX * DATASET_RANGE_BYTES];
    let data = copy_ranges(queues, io, id, &mut bytes);
    let length = data.len() as u64;
    let disk = queues.requests[id].disk;
    let disk = &io.disks[disk.expect("a command with ranges has a disk")];
    if let Err(status) = DatasetRanges::parse(data, &disk.view) {
        return respond::fail(queues, io, now, id, status);
    }
    if !disk.backend().takes_advice() {
        return respond::finish(queues, io, now, id, Status::SUCCESS, 0);
    }
    let is_limited = disk.namespace.depth.is_limited();
    let ranges = ordering::input_span(queues, io, id);
    let request = &mut queues.requests[id];
    let hints = Hints {
        attributes: request.sqe.cdw11.get() as u8,
        ..Hints::default()
    };
    let block = BlockIo::new(BlockOp::Advise, 0, length, None);
    request.plan(block.with_hints(hints));
    if is_limited {
        request.restrictions = request.restrictions.limited();
    }
    begin(queues, io, now, id, Some(ranges));
}

fn matches(queues: &Queues, io: &Io, id: RequestId) -> bool {
    let read = io.scratch_span(&queues.requests[id]);
    io.ring.equal(ordering::input_span(queues, io, id), read)
}

fn fail(queues: &mut Queues, io: &mut Io, now: &Now, id: RequestId, errno: Errno) {
    let block = queues.requests[id].block.expect("block I/O was planned");
    let status = status_of(block.op, errno);
    // A cancellation was already logged.
    if errno != Errno(libc::ECANCELED) {
        let subsystem = &queues.association(id).subsystem;
        if status.sct() == SCT_MEDIA {
            subsystem.counters(io.disks.reactor()).media_errors.add(1);
        }
        report_failure(queues, io, now, id, block, errno);
        let disk = queues.requests[id].disk.expect("block I/O has a disk");
        if is_protection_error(errno) {
            io.disks[disk].counters.protection_errors.add(1);
        }
        if io.disks[disk].backend().is_failed() {
            subsystem.show_losses();
        }
    }
    respond::fail(queues, io, now, id, status);
}

fn serial_ended(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    disk: u32,
    kind: SerialKind,
    result: Option<Result<(), Errno>>,
) {
    let serial = &mut io.disks[disk].depth_queues.serial;
    serial.ends(kind);
    if kind == SerialKind::Flush {
        match result {
            Some(result) if result != Err(Errno(libc::ECANCELED)) => {
                let mut joined = serial.take_joined();
                while let Some(id) = queues.requests.pop_front(&mut joined) {
                    ended(queues, io, now, id, result);
                }
            }
            _ => serial.disjoin(&mut queues.requests),
        }
    }
    serve_turns(queues, io, now, disk);
}

fn serve_turns(queues: &mut Queues, io: &mut Io, now: &Now, disk: u32) {
    while let Some(id) = io.disks[disk]
        .depth_queues
        .serial
        .next(&mut queues.requests)
    {
        let handed = hand_over_restricted(queues, io, id);
        go_on(queues, io, now, id, handed);
    }
}

/// Starts or completes requests that waited for `id`. The `result` is `None` if `id` will be
/// retried.
#[cold]
fn went_out(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    id: RequestId,
    result: Option<Result<(), Errno>>,
) {
    let request = &queues.requests[id];
    let (disk, restrictions) = (
        request.disk.expect("block I/O has a disk"),
        request.restrictions,
    );
    if request.leaves_order() && result.is_some() {
        ordering::leave_at(queues, io, id);
    }
    if let Some(kind) = restrictions.serial_kind() {
        serial_ended(queues, io, now, disk, kind, result);
    } else if restrictions.is_counted() {
        leave(queues, io, id);
        serve_depth_queues(queues, io, now, disk);
    }
}

fn serve_depth_queues(queues: &mut Queues, io: &mut Io, now: &Now, at: u32) {
    loop {
        let disk = &mut io.disks[at];
        let depth = &disk.namespace.depth;
        let Some(id) = disk.depth_queues.next(depth, &mut queues.requests) else {
            return;
        };
        let request = &queues.requests[id];
        let waited_ns = request.times.here_for_ns(now.ns);
        count::limit_wait(request, queues.association(id), &io.disks, waited_ns);
        let handed = hand_over_restricted(queues, io, id);
        go_on(queues, io, now, id, handed);
    }
}

pub(in crate::reactor) fn serve_retries(queues: &mut Queues, io: &mut Io, now: &Now) -> bool {
    let due = io.retries.take_due(&mut queues.requests, now.at);
    for &id in &due {
        let block = queues.requests[id].block.as_ref();
        let span = block.expect("block I/O is planned").span;
        begin(queues, io, now, id, span);
    }
    !due.is_empty()
}

pub(in crate::reactor) fn older_ended(queues: &mut Queues, io: &mut Io, now: &Now, work: WorkId) {
    let waits = |id: &RequestId| queues.requests[*id].stage() == Stage::AwaitingOlder;
    if let Some(id) = queues.requests.get(work).filter(waits) {
        after_older(queues, io, now, id, false);
    }
}

pub(in crate::reactor) fn overtake(queues: &mut Queues, io: &mut Io, now: &Now) -> bool {
    let late = io.older.take_late(&queues.requests, now);
    for &id in &late {
        after_older(queues, io, now, id, true);
    }
    !late.is_empty()
}

fn after_older(queues: &mut Queues, io: &mut Io, now: &Now, id: RequestId, late: bool) {
    if ordering::arrive(queues, io, id, late) == Arrival::Wait {
        return;
    }
    io.older.take(&mut queues.requests, id);
    let request = &queues.requests[id];
    match &request.block {
        Some(block) if request.restrictions.is_ordered() => {
            let span = block.span;
            begin(queues, io, now, id, span);
        }
        _ => enter(queues, io, now, id),
    }
}
