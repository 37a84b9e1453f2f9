//! Room 7: the host has the response. Buffers, credits and the request are free again.

use cairn_rdma::WorkStatus;

use super::command::Command;
use super::count::count_latency;
use super::io::Io;
use super::queues::{Broken, Queues};
use super::time::Now;
use crate::ending::Ending;
use crate::ids::QpairId;
use crate::request::Stage;
use crate::work_id::{WorkId, WorkKind};

/// A SEND ended, well or not: nothing of the request is left. The result is its queue
/// pair, if other requests of it wait for the credits.
///
/// # Errors
/// The queue pair must be closed.
#[inline(always)]
pub(super) fn send_ended(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    work: WorkId,
    status: WorkStatus,
) -> Result<Option<QpairId>, Broken> {
    let mut command = queues.command_of(work);
    let Command { request, queue, .. } = &mut command;
    request.set_stage(Stage::Sending, Stage::Running);
    let (qpair, close_after) = (request.qpair, request.close_after);
    queue.send_credits += u32::from(request.send_work);
    queue.work_returned(now.at);
    let others_wait = queue.is_open() && queue.has_waiting();
    if status.is_success() && !close_after {
        count_latency(request, queue.association.as_ref(), &io.disks, now.ns);
    }
    free(command, io);
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
#[cold]
pub(super) fn abandon(mut command: Command<'_>, io: &mut Io) {
    command.release_receive();
    command.request.take_permit().abandoned();
    free(command, io);
}

/// Frees a request: its buffers, its disk, its place.
#[inline(always)]
pub(super) fn free(mut command: Command<'_>, io: &mut Io) {
    command.release_buffers(io);
    io.disks.end(command.request, &mut io.ring);
    command.free();
}
