//! Ordered changes of hosts with several associations: see [`crate::order`].

use std::ops::Range;

use cairn_disk::Span;
use nvme_proto::io::{DATASET_RANGE_BYTES, DATASET_RANGES_MAX, DatasetRanges, OperationKind};

use super::disks::Disks;
use super::io::Io;
use super::queues::Queues;
use crate::order::{Arrival, Entrance, Waiter};
use crate::qpair::Association;
use crate::request::{Request, RequestId, Stage, Task};
use crate::work_id::WorkKind;

pub(super) fn is_ordered(queues: &Queues, io: &Io, id: RequestId) -> bool {
    let controller = &queues.association(id).controller;
    let disk = queues.requests[id].disk;
    controller.limiter.is_ordered() || disk.is_some_and(|disk| io.disks[disk].is_exclusive)
}

/// Returns false for Dataset Management and Copy, because their ranges arrive later.
fn changes_blocks(request: &Request) -> bool {
    match request.task {
        Task::Io(OperationKind::DatasetManagement { .. } | OperationKind::Copy) => false,
        Task::Io(kind) => kind.changes(),
        _ => false,
    }
}

fn bytes_of(request: &Request, disks: &Disks) -> Range<u64> {
    let disk = request.disk.expect("a command with blocks has a disk");
    let start = request.sqe.cdw10_11() << disks[disk].view.lbads;
    start..start + request.disk_bytes
}

fn of_association(queues: &mut Queues, id: RequestId) -> (&mut Request, &Association) {
    let request = &mut queues.requests[id];
    let association = queues.qpairs[request.qpair].association.as_ref();
    (request, association.expect("an I/O queue is connected"))
}

fn enter(
    request: &mut Request,
    id: RequestId,
    association: &Association,
    disks: &Disks,
    entrance: Entrance,
    ranges: impl Iterator<Item = Range<u64>>,
) {
    let disk = &disks[request.disk.expect("a change has a disk")];
    let waiter = Waiter {
        reactor: disks.reactor(),
        work: request.work_id(id, WorkKind::Block),
    };
    let from = association.controller.sender();
    let order = &disk.namespace.order;
    request.ordered = Some(order.enter(from, waiter, entrance, ranges));
}

pub(super) fn planned(queues: &mut Queues, io: &Io, id: RequestId) {
    let (request, association) = of_association(queues, id);
    if !changes_blocks(request) {
        return;
    }
    if request.ordered.is_some() {
        request.restrictions = request.restrictions.ordered();
        return;
    }
    request.restrictions = request.restrictions.ordered();
    let ranges = std::iter::once(bytes_of(request, &io.disks));
    enter(
        request,
        id,
        association,
        &io.disks,
        Entrance::Change,
        ranges,
    );
}

pub(super) fn exclude(queues: &mut Queues, io: &Io, id: RequestId) {
    let (request, association) = of_association(queues, id);
    if request.ordered.is_some() {
        return;
    }
    request.restrictions = request.restrictions.ordered();
    let ranges = std::iter::once(bytes_of(request, &io.disks));
    enter(
        request,
        id,
        association,
        &io.disks,
        Entrance::Exclusive,
        ranges,
    );
    let disk = request.disk.expect("a command with blocks has a disk");
    association
        .subsystem
        .exclude(&io.disks[disk].namespace.order);
}

pub(super) fn arrive(queues: &Queues, io: &Io, id: RequestId, late: bool) -> Arrival {
    let request = &queues.requests[id];
    let ticket = request.ordered.expect("an ordered change is entered");
    let disk = request.disk.expect("a change has a disk");
    io.disks[disk].namespace.order.arrive(ticket, late)
}

pub(super) fn arrive_with(
    queues: &mut Queues,
    io: &Io,
    id: RequestId,
    ranges: &DatasetRanges<'_>,
) -> Arrival {
    if queues.requests[id].ordered.is_none() {
        if !is_ordered(queues, io, id) {
            return Arrival::Go;
        }
        let (request, association) = of_association(queues, id);
        let ranges = bytes_of_ranges(request, &io.disks, ranges);
        enter(
            request,
            id,
            association,
            &io.disks,
            Entrance::Change,
            ranges,
        );
    }
    arrive(queues, io, id, false)
}

/// Registers the destination of a Copy before its first step.
pub(super) fn arrive_whole(queues: &mut Queues, io: &Io, id: RequestId) -> Arrival {
    if queues.requests[id].ordered.is_none() {
        if !is_ordered(queues, io, id) {
            return Arrival::Go;
        }
        let (request, association) = of_association(queues, id);
        let blocks = std::iter::once(bytes_of(request, &io.disks));
        enter(
            request,
            id,
            association,
            &io.disks,
            Entrance::Change,
            blocks,
        );
    }
    arrive(queues, io, id, false)
}

fn bytes_of_ranges<'a>(
    request: &Request,
    disks: &'a Disks,
    ranges: &DatasetRanges<'a>,
) -> impl Iterator<Item = Range<u64>> + use<'a> {
    let disk = request.disk.expect("a command with ranges has a disk");
    let view = &disks[disk].view;
    ranges.iter().map(move |range| {
        let start = range.slba << view.lbads;
        start..start + view.bytes(range.blocks)
    })
}

/// Called when the disk has completed the change or can no longer receive it.
#[cold]
pub(super) fn leave(request: &mut Request, association: &Association, disks: &Disks) {
    if let Some(ticket) = request.ordered.take() {
        let disk = request.disk.expect("a change has a disk");
        let order = &disks[disk].namespace.order;
        order.leave(ticket, |waiter| association.subsystem.wake(waiter));
    }
}

pub(super) fn leave_at(queues: &mut Queues, io: &Io, id: RequestId) {
    if queues.requests[id].ordered.is_some() {
        let (request, association) = of_association(queues, id);
        leave(request, association, &io.disks);
    }
}

pub(super) fn enter_former(queues: &mut Queues, io: &Io, id: RequestId) {
    let request = &queues.requests[id];
    if request.ordered.is_some() || request.disk.is_none() {
        return;
    }
    match request.stage() {
        Stage::InBackend | Stage::AwaitingTurn | Stage::AwaitingRetry => {
            let ranges = matches!(
                request.task,
                Task::Io(OperationKind::DatasetManagement { deallocate: true })
            );
            let span = ranges.then(|| input_span(queues, io, id));
            let (request, association) = of_association(queues, id);
            enter_at_disk(request, id, association, io, span);
        }
        Stage::AwaitingLimit | Stage::AwaitingBuffer | Stage::AwaitingRead | Stage::Reading => {
            planned(queues, io, id);
        }
        _ => {}
    }
}

fn enter_at_disk(
    request: &mut Request,
    id: RequestId,
    association: &Association,
    io: &Io,
    span: Option<Span>,
) {
    let disks = &io.disks;
    let is_copy = matches!(request.task, Task::Io(OperationKind::Copy));
    if let Some(span) = span {
        let mut bytes = [0; DATASET_RANGES_MAX * DATASET_RANGE_BYTES];
        let data = &mut bytes[..request.transfer.length() as usize];
        io.ring.peek(span, data);
        let disk = request.disk.expect("a command with ranges has a disk");
        if let Ok(ranges) = DatasetRanges::parse(data, &disks[disk].view) {
            let ranges = bytes_of_ranges(request, disks, &ranges);
            enter(request, id, association, disks, Entrance::AtDisk, ranges);
        }
    } else if changes_blocks(request) || is_copy {
        // A Copy leaves the order only at its last step.
        if !is_copy {
            request.restrictions = request.restrictions.ordered();
        }
        let ranges = std::iter::once(bytes_of(request, disks));
        enter(request, id, association, disks, Entrance::AtDisk, ranges);
    }
}

pub(super) fn enter_lost(
    request: &mut Request,
    id: RequestId,
    association: &Association,
    disks: &Disks,
) {
    let Some(block) = &request.block else { return };
    if request.ordered.is_none() && block.op.changes() {
        // Only the current range is registered, because a panicked reactor starts no further range.
        let ranges = std::iter::once(block.offset..block.offset + block.length);
        enter(request, id, association, disks, Entrance::AtDisk, ranges);
    }
}

pub(super) fn input_span(queues: &Queues, io: &Io, id: RequestId) -> Span {
    let request = &queues.requests[id];
    match &request.data {
        Some(buffer) => io.arena.span(buffer, request.transfer.length()),
        None => queues.capsule_span(id),
    }
}
