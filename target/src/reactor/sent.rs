//! Room 7: the host has the response. Buffers, credits and the request are free again.

use cairn_rdma::WorkStatus;

use super::count::count_way;
use super::io::Io;
use super::queues::{Broken, Queues};
use super::time::Now;
use crate::ending::Ending;
use crate::ids::QpairId;
use crate::request::{RequestId, Stage};
use crate::work_id::{WorkId, WorkKind};

/// A SEND ended, well or not: nothing of the request is left. The result is its queue
/// pair, if other requests of it wait for the credits.
///
/// # Errors
/// The queue pair must be closed.
#[inline]
pub(super) fn send_ended(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    work: WorkId,
    status: WorkStatus,
) -> Result<Option<QpairId>, Broken> {
    let (id, request) = queues.requests.find_mut(work);
    request.set_stage(Stage::Sending, Stage::Running);
    let (qpair, close_after) = (request.qpair, request.close_after);
    let queue = &mut queues.qpairs[qpair];
    queue.send_credits += u32::from(request.send_work);
    queue.work_returned(now.at);
    let others_wait = queue.is_open() && queue.has_waiting();
    if status.is_success() && !close_after {
        count_way(request, queue.association.as_ref(), &io.disks, now.ns);
    }
    if request.holds_buffers() {
        release_buffers(queues, io, id);
    }
    free(queues, io, id);
    if !status.is_success() {
        return Err(queues.work_failed(qpair, WorkKind::Send, status));
    }
    if close_after {
        let ending = Some(Ending::Orderly("its Connect was refused"));
        return Err(Broken { qpair, ending });
    }
    Ok(others_wait.then_some(qpair))
}

/// A WRITE failed; the SEND after it will be flushed.
pub(super) fn write_failed(queues: &mut Queues, work: WorkId, status: WorkStatus) -> Broken {
    assert!(!status.is_success(), "WRITEs are not signaled");
    let id = queues.requests.find(work);
    let qpair = queues.requests[id].qpair;
    queues.work_failed(qpair, WorkKind::Write, status)
}

/// Ends a command whose queue is gone.
pub(super) fn abandon(queues: &mut Queues, io: &mut Io, id: RequestId) {
    queues.release_receive(id);
    release_buffers(queues, io, id);
    queues.requests[id].take_permit().abandoned();
    free(queues, io, id);
}

/// Gives the buffers of a request back.
pub(super) fn release_buffers(queues: &mut Queues, io: &mut Io, id: RequestId) {
    let share = queues.share_of(&queues.requests[id]);
    io.release_buffers(&mut queues.requests[id], share);
}

/// Frees a request of which nothing is left.
#[inline(always)]
pub(super) fn free(queues: &mut Queues, io: &mut Io, id: RequestId) {
    let request = &mut queues.requests[id];
    let qpair = request.qpair;
    io.disks.end(request, &mut io.ring);
    queues.requests.release(id);
    queues.request_ended(qpair);
}
