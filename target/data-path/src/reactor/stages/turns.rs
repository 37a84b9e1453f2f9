//! Waiting of commands at a disk for serial operations and the depth limit.

use crate::reactor::io::Io;
use crate::reactor::queueing::depth_queues::HostShare;
use crate::reactor::queues::{Queues, Wait};
use crate::request::{RequestId, Restrictions};

#[cold]
pub(super) fn must_wait(
    queues: &mut Queues,
    io: &mut Io,
    id: RequestId,
    restrictions: Restrictions,
) -> bool {
    let request = &queues.requests[id];
    let disk = &mut io.disks[request.disk.expect("block I/O has a disk")];
    if !disk.backend().uses_ring() {
        return false;
    }
    if let Some(kind) = restrictions.serial_kind() {
        return disk
            .depth_queues
            .serial
            .must_wait(kind, id, &mut queues.requests);
    }
    if !restrictions.is_limited() {
        return false;
    }
    let host = HostShare {
        share: queues.qpairs[request.qpair].share,
        weight: queues.association(id).controller.limiter.weight(),
    };
    let depth = &disk.namespace.depth;
    let waits = disk
        .depth_queues
        .must_wait(depth, id, host, &mut queues.requests);
    if waits {
        queues.count_wait(id, Wait::Limit);
    }
    waits
}

pub(super) fn leave(queues: &mut Queues, io: &mut Io, id: RequestId) {
    let request = &mut queues.requests[id];
    if request.restrictions.is_counted() {
        let disk = &mut io.disks[request.disk.expect("block I/O has a disk")];
        disk.depth_queues.ended(&disk.namespace.depth, request);
    }
}
