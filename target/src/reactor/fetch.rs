//! Room 4, for the data of writes: what did not come in the capsule is fetched by RDMA READ.
//! All others pass through to the disk.

use cairn_rdma::{Operation, RemoteBuffer, SendWork, SgeList, WorkStatus};
use nvme_proto::transfer::DataTransfer;

use super::io::Io;
use super::queues::{Broken, Queues, Wait};
use super::time::Now;
use super::{disk, sent};
use crate::ids::QpairId;
use crate::registry::KEEP_ALIVE_EXPIRED;
use crate::request::{RequestId, Stage};
use crate::work_id::{WorkId, WorkKind};

/// Brings the data from the host, if there is any, and goes on.
#[inline(always)]
pub(super) fn fetch(queues: &mut Queues, io: &mut Io, now: &Now, id: RequestId) {
    let request = &mut queues.requests[id];
    request.times.held(now.ns);
    match request.transfer {
        DataTransfer::FromHost(_) => {
            let qpair = request.qpair;
            let queue = &mut queues.qpairs[qpair];
            let must_wait = !queue.may_read();
            let waiting = &mut queue.awaiting_read;
            queues.requests.push_back(waiting, id, Stage::AwaitingRead);
            if must_wait {
                return queues.count_wait(id, Wait::Read);
            }
            pump_reads(queues, io, now, qpair);
        }
        DataTransfer::InCapsule(_) if request.data.is_some() => {
            // It lies where the disk cannot take it from: a rare copy.
            let to = io.data_span(request);
            io.ring.copy_span(queues.capsule_span(id), to);
            queues.release_receive(id);
            disk::execute(queues, io, now, id);
        }
        DataTransfer::None | DataTransfer::ToHost(_) | DataTransfer::InCapsule(_) => {
            disk::execute(queues, io, now, id);
        }
    }
}

/// Posts the READs that a queue pair has credits for.
pub(super) fn pump_reads(queues: &mut Queues, io: &Io, now: &Now, qpair: QpairId) {
    loop {
        let queue = &mut queues.qpairs[qpair];
        if !queue.may_read() {
            return;
        }
        let Some(id) = queues.requests.pop_front(&mut queue.awaiting_read) else {
            return;
        };
        queue.read_credits -= 1;
        queue.send_credits -= 1;
        queue.work_posted(now.at);
        let lkey = queues.port(queues.qpairs[qpair].port).arena_lkey();
        let request = &mut queues.requests[id];
        let DataTransfer::FromHost(remote) = request.transfer else {
            unreachable!("only data from the host is READ");
        };
        let work = SendWork {
            id: request.work_id(id, WorkKind::Read),
            op: Operation::Read(RemoteBuffer {
                addr: remote.address,
                rkey: remote.rkey,
            }),
            sges: SgeList::one(request.local_data(&io.arena, lkey, remote.length)),
            signaled: true,
        };
        request.set_stage(Stage::Running, Stage::Reading);
        queues.push_read(qpair, work);
    }
}

/// An RDMA READ ended, well or not.
///
/// # Errors
/// The queue pair must be closed.
pub(super) fn read_ended(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    work: WorkId,
    status: WorkStatus,
) -> Result<(), Broken> {
    let (id, request) = queues.requests.find_mut(work);
    request.set_stage(Stage::Reading, Stage::Running);
    request.times.fetched(now.ns);
    let qpair = request.qpair;
    let queue = &mut queues.qpairs[qpair];
    queue.read_credits += 1;
    queue.send_credits += 1;
    queue.work_returned(now.at);
    let (is_open, is_over) = (queue.is_open(), queue.is_over(now.ns));
    if is_open && !is_over && status.is_success() {
        disk::execute(queues, io, now, id);
        return Ok(());
    }
    sent::abandon(queues, io, id);
    if !status.is_success() {
        return Err(queues.work_failed(qpair, WorkKind::Read, status));
    }
    if is_open {
        let ending = Some(KEEP_ALIVE_EXPIRED);
        return Err(Broken { qpair, ending });
    }
    Ok(())
}
