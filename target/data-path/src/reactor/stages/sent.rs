//! Stage 7: releases a command once the host has the response.

use cairn_rdma::WorkStatus;

use crate::ending::Ending;
use crate::ids::QpairId;
use crate::reactor::command::Command;
use crate::reactor::count::count_latency;
use crate::reactor::io::Io;
use crate::reactor::ordering;
use crate::reactor::queues::{Broken, Queues};
use crate::reactor::time::Now;
use crate::request::{OWN_WORK, RequestId, Stage};
use crate::work_id::{WorkId, WorkKind};

/// Frees the requests of a signaled SEND and of the unsignaled SENDs before it. Returns the queue
/// pair if requests wait for its credits, or an error if the queue pair must be closed.
#[inline(always)]
pub(in crate::reactor) fn send_ended(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    work: WorkId,
    status: WorkStatus,
) -> Result<Option<QpairId>, Broken> {
    let mut command = queues.command_of(work);
    let qpair = command.request.qpair;
    let mut last = None;
    let others_wait = loop {
        let Command {
            request,
            queue,
            free: spare,
            ..
        } = &mut command;
        let before = request.sent();
        let work = u32::from(request.send_work);
        queue.send_credits += work;
        if work > OWN_WORK {
            spare.give_back(work);
        }
        queue.work_returned(now.at);
        let others_wait = queue.is_open() && queue.has_waiting();
        if request.close_after.is_some() {
            last = request.close_after;
        } else if status.is_success() {
            count_latency(request, queue.association.as_ref(), &io.disks, now.ns);
        }
        free(command, io);
        let Some(before) = before else {
            break others_wait;
        };
        command = queues.command(before);
    };
    if !status.is_success() {
        return Err(queues.work_failed(qpair, WorkKind::Send, status));
    }
    if let Some(last) = last {
        let ending = Some(Ending::Orderly(last.reason()));
        return Err(Broken { qpair, ending });
    }
    Ok(others_wait.then_some(qpair))
}

pub(in crate::reactor) fn unsignaled_failed(
    queues: &mut Queues,
    work: WorkId,
    status: WorkStatus,
) -> Broken {
    assert!(!status.is_success(), "{work:?} is not signaled");
    let id = queues.requests.find(work);
    let qpair = queues.requests[id].qpair;
    queues.work_failed(qpair, work.kind(), status)
}

/// A request of a fused pair first waits until its partner is at no device or disk.
#[cold]
pub(in crate::reactor) fn abandon(queues: &mut Queues, io: &mut Io, id: RequestId) {
    if let Some(partner) = queues.requests[id].fused.partner() {
        if queues.requests[partner].stage() != Stage::AwaitingPartner {
            let requests = &mut queues.requests;
            return requests.set_stage(id, Stage::Running, Stage::AwaitingPartner);
        }
        queues.requests.separate(id);
        abandon_one(queues.command(partner), io);
    }
    abandon_one(queues.command(id), io);
}

#[cold]
pub(in crate::reactor) fn abandon_one(mut command: Command<'_>, io: &mut Io) {
    command.release_receive();
    if let Some(association) = &command.queue.association {
        ordering::leave(command.request, association, &io.disks);
    }
    command.request.take_permit().abandoned();
    free(command, io);
}

#[inline(always)]
pub(in crate::reactor) fn free(mut command: Command<'_>, io: &mut Io) {
    command.release_buffers(io);
    io.disks.end(command.request, &mut io.ring);
    command.free();
}
