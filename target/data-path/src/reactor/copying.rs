//! Steps of a Copy: each reads a piece of a source range into the scratch buffer, or writes it to
//! the destination. The request's `steps_done` is the number of copied bytes.

use cairn_disk::{BlockIo, BlockOp, Hints, Span};
use nvme_proto::io::{COPY_BYTES_MAX, CopyRanges, OperationKind};
use nvme_proto::wire::Status;

use super::io::Io;
use super::ordering;
use super::queueing::limited::HostDisk;
use super::queues::{Queues, Wait};
use crate::order::Arrival;
use crate::request::{Request, RequestId, Stage, Task};

/// Maximum bytes of a piece; MDTS may be lower.
pub(super) const PIECE_BYTES: u32 = 64 << 10;

pub(super) enum Next {
    Start(Span),
    /// The command is in a queue.
    Waits,
    Overtaken,
    Done(Status),
}

#[cold]
pub(super) fn next(queues: &mut Queues, io: &mut Io, id: RequestId) -> Next {
    let mut bytes = [0; COPY_BYTES_MAX];
    let data = source_ranges(queues, io, id, &mut bytes);
    let Queues {
        requests, qpairs, ..
    } = queues;
    let request = &mut requests[id];
    let association = qpairs[request.qpair].association.as_ref();
    let association = association.expect("an I/O queue is connected");
    let disk = &io.disks[request.disk.expect("a copy has a disk")];
    let (view, limits) = (disk.view, association.subsystem.io_limits());
    let last = request.block;
    if let Some(block) = last.filter(|block| block.op.changes()) {
        request.steps_done += block.length as u32;
    }
    let ranges = match CopyRanges::parse(&request.sqe, data, &view, limits) {
        Ok(ranges) => ranges,
        Err(status) => return Next::Done(status),
    };
    if request.disk_bytes == 0 {
        request.disk_bytes = view.bytes(ranges.blocks());
        if disk.has_limit(association) {
            await_limits(queues, io, id);
            return Next::Waits;
        }
    }
    if last.is_none() {
        match ordering::arrive_whole(queues, io, id) {
            Arrival::Go => {}
            Arrival::Wait => {
                io.older.add(&mut queues.requests, id);
                return Next::Waits;
            }
            Arrival::Overtaken => return Next::Overtaken,
        }
    }
    let controller = &queues.association(id).controller;
    let (command, durable) = (ranges.command(), !controller.write_cache());
    let disk = &io.disks[queues.requests[id].disk.expect("a copy has a disk")];
    let is_limited = disk.namespace.depth.is_limited();
    let request = &mut queues.requests[id];
    let block = match last {
        Some(read) if read.op == BlockOp::Read => {
            let to = (command.sdlba << view.lbads) + u64::from(request.steps_done);
            let durable = durable || command.fua;
            BlockIo::new(BlockOp::Write { durable }, to, read.length, None)
        }
        _ => {
            let Some((_, rest)) = ranges.after(request.steps_done >> view.lbads) else {
                return Next::Done(Status::SUCCESS);
            };
            let length = view.bytes(rest.blocks).min(request.buffer_bytes.1.into());
            BlockIo::new(BlockOp::Read, rest.slba << view.lbads, length, None)
        }
    };
    request.plan(block.with_hints(Hints {
        fua: command.fua && block.op.changes(),
        limited_retry: request.sqe.cdw12.get() >> 31 != 0,
        ..Hints::default()
    }));
    if is_limited {
        request.restrictions = request.restrictions.limited();
    }
    Next::Start(io.scratch_span(request).part(0, block.length as u32))
}

fn source_ranges<'a>(
    queues: &Queues,
    io: &Io,
    id: RequestId,
    bytes: &'a mut [u8; COPY_BYTES_MAX],
) -> &'a [u8] {
    let data = &mut bytes[..queues.requests[id].transfer.length() as usize];
    io.ring.peek(ordering::input_span(queues, io, id), data);
    data
}

fn await_limits(queues: &mut Queues, io: &mut Io, id: RequestId) {
    let share = queues.command(id).share();
    let disk = queues.requests[id].disk;
    queues.count_wait(id, Wait::Limit);
    let (requests, waiting) = (&mut queues.requests, &mut io.limited.waiting);
    waiting.push_request(requests, HostDisk { share, disk }, id, Stage::AwaitingLimit);
    io.limited.look_at(0);
}

pub(super) fn has_ranges(request: &Request) -> bool {
    matches!(request.task, Task::Io(OperationKind::Copy)) && request.disk_bytes > 0
}

pub(super) fn is_unfinished(request: &Request) -> bool {
    let is_last = |block: &BlockIo| {
        block.op.changes() && u64::from(request.steps_done) + block.length == request.disk_bytes
    };
    has_ranges(request) && !request.block.as_ref().is_some_and(is_last)
}

/// Returns the result of a failed Copy: the number of the first source range not completely copied.
#[cold]
pub(super) fn result_of_failure(queues: &Queues, io: &Io, id: RequestId) -> u64 {
    let request = &queues.requests[id];
    let Some(disk) = request.disk.filter(|_| has_ranges(request)) else {
        return 0;
    };
    let mut bytes = [0; COPY_BYTES_MAX];
    let data = source_ranges(queues, io, id, &mut bytes);
    let (view, limits) = (
        io.disks[disk].view,
        queues.association(id).subsystem.io_limits(),
    );
    let ranges = CopyRanges::parse(&request.sqe, data, &view, limits).ok();
    let next = ranges.and_then(|ranges| ranges.after(request.steps_done >> view.lbads));
    next.map_or(0, |(index, _)| index.into())
}
