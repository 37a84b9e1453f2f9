//! Admission of a fused Compare and Write: two requests that pass the gates as one.
//!
//! The first request is charged for both, and has one buffer for both, so that a waiting pair holds
//! no resource that another pair needs. While the first request is at a gate, the second waits
//! ([`Stage::AwaitingPartner`](crate::request::Stage)). From the comparison to the end of the
//! write, the pair excludes all changes and comparisons of its blocks ([`crate::order`]).

use nvme_proto::wire::Status;

use super::{admission, buffers, gates, plan, respond};
use crate::qpair::Capsule;
use crate::reactor::command::Stop;
use crate::reactor::io::Io;
use crate::reactor::ordering;
use crate::reactor::queues::Queues;
use crate::reactor::time::Now;
use crate::request::{RequestId, Stage};

pub(in crate::reactor) fn admit(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    first: &Capsule,
    second: &Capsule,
) {
    admission::note_begun(&queues.qpairs[first.qpair], io, now, &first.sqe);
    let dropped = first.is_data_dropped() || second.is_data_dropped();
    let checked = match dropped {
        true => Err(Status::NAMESPACE_NOT_READY),
        false => nvme_proto::fused::check(&first.sqe, &second.sqe),
    };
    let ids = [first, second].map(|capsule| queues.take_on(capsule));
    for id in ids {
        queues.requests[id].sqe.unfuse();
    }
    if let Err(status) = checked {
        return refuse(queues, io, now, ids, status);
    }
    let [first, second] = ids;
    queues.requests.fuse(first, second);
    let mut stops = false;
    for id in ids {
        match plan::one_of_pair(&mut queues.command(id), io) {
            Ok(own) => stops |= own,
            Err(status) => return respond::fail(queues, io, now, id, status),
        }
    }
    if let Err(status) = share_buffer(queues, io, first, second) {
        queues.requests.separate(first);
        return refuse(queues, io, now, ids, status);
    }
    ordering::exclude(queues, io, first);
    let requests = &mut queues.requests;
    requests.set_stage(second, Stage::Running, Stage::AwaitingPartner);
    let stop = match stops {
        true => Stop::Limit,
        false => buffers::pass(queues.command(first), io, now),
    };
    gates::resume(queues, io, now, first, stop);
}

fn refuse(queues: &mut Queues, io: &mut Io, now: &Now, ids: [RequestId; 2], status: Status) {
    for id in ids {
        respond::fail(queues, io, now, id, status);
    }
}

fn share_buffer(
    queues: &mut Queues,
    io: &mut Io,
    first: RequestId,
    second: RequestId,
) -> Result<(), Status> {
    let disk = queues.requests[first].disk;
    let disk = &io.disks[disk.expect("a command with blocks has a disk")];
    // Other targets of a shared disk could change its blocks between Compare and Write.
    if !disk.namespace.is_reservable() {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    let length = queues.requests[first].transfer.length();
    let alignment = disk.backend().geometry().memory_alignment;
    let bytes = length.next_multiple_of(alignment) + length;
    if bytes as usize > io.arena.pool().largest() {
        return Err(Status::ATOMIC_WRITE_UNIT_EXCEEDED.with_dnr());
    }
    queues.requests[first].buffer_bytes.0 = bytes;
    queues.requests[second].buffer_bytes = (0, 0);
    Ok(())
}
