//! Stage 6: completes a command. Data and response are posted together at the end of the round.

use std::time::Instant;

use cairn_disk::Arena;
use cairn_rdma::{Operation, RemoteBuffer, SendWork, SgeList, WorkStatus};
use nvme_proto::controller::error_log::Failure;
use nvme_proto::io::OperationKind;
use nvme_proto::transfer::DataTransfer;
use nvme_proto::wire::Status;

use super::lists;
use super::sent;
use crate::capsules::write_response;
use crate::ids::QpairId;
use crate::qpair::QueuePair;
use crate::reactor::command::{Command, Stop};
use crate::reactor::copying;
use crate::reactor::count::count_end;
use crate::reactor::io::Io;
use crate::reactor::ordering;
use crate::reactor::queues::{Broken, Queues, Wait};
use crate::reactor::time::Now;
use crate::request::{OWN_WORK, Request, RequestId, Stage, Task};
use crate::work_id::{WorkId, WorkKind};

/// Work requests of one response: WRITE and SEND.
const RESPONSE_WORK: usize = OWN_WORK as usize;

/// Returns false for data in several pieces ([`lists::write`]).
#[inline]
fn claim_send(request: &mut Request, queue: &mut QueuePair) -> bool {
    let send_work = match request.transfer {
        DataTransfer::ToHost(_) => OWN_WORK,
        DataTransfer::ToHostList(_) => return false,
        _ => 1,
    };
    let enough = queue.send_credits >= send_work;
    if enough {
        queue.send_credits -= send_work;
        request.send_work = send_work as u8;
    }
    enough
}

/// The caller must have checked credits and room in the outbox.
#[inline(always)]
fn respond(command: Command<'_>, arena: &Arena, now: Instant) {
    let Command {
        id,
        request,
        queue,
        ports,
        dirty,
        ..
    } = command;
    let port = ports[queue.port].as_ref();
    let port = port.expect("an open queue pair has a port");
    queue.work_posted(now);
    queue.command_ends();
    let cqe = request.completion.cqe(queue.advance_sqhd());
    request.take_permit().answered();
    if queue.outbox.is_empty() {
        dirty.push(request.qpair);
    }
    let lkey = port.arena_lkey();
    let mut bytes = 0;
    if let DataTransfer::ToHost(remote) = request.transfer {
        bytes = remote.length;
        let write = SendWork {
            id: request.work_id(id, WorkKind::Write),
            op: Operation::Write(RemoteBuffer {
                addr: remote.address,
                rkey: remote.rkey,
            }),
            sges: SgeList::one(request.local_data(arena, lkey, remote.length)),
            signaled: false,
        };
        queue.outbox.push_write(write, bytes);
    }
    // The rkey of a failed command is invalidated, too.
    let rkey = request.sqe.dptr.invalidate_rkey();
    let op = match rkey.filter(|_| port.limits().send_with_invalidate) {
        Some(rkey) => Operation::SendWithInvalidate { rkey },
        None => Operation::Send,
    };
    let (before, signaled) = queue.outbox.cover(id, bytes);
    let kind = match signaled {
        true => WorkKind::Send,
        false => WorkKind::CoveredSend,
    };
    queue.outbox.push_other(SendWork {
        id: request.work_id(id, kind),
        op,
        sges: SgeList::one(write_response(arena, id.index(), &cqe, lkey)),
        signaled,
    });
    request.sends(before);
}

#[inline(always)]
pub(in crate::reactor) fn pass(
    mut command: Command<'_>,
    io: &mut Io,
    now: &Now,
    status: Status,
    result: u64,
) -> Stop {
    let Command { request, queue, .. } = &mut command;
    request.end(status, result, now.ns);
    let to_host = matches!(
        request.transfer,
        DataTransfer::ToHost(_) | DataTransfer::ToHostList(_)
    );
    if status != Status::SUCCESS && to_host {
        request.transfer = DataTransfer::None;
    }
    count_end(request, status, queue.association.as_ref(), &io.disks);
    let keeps_data = status == Status::SUCCESS && to_host;
    if !keeps_data {
        command.release_buffers(io);
    }
    command.release_receive();
    command.make_room(RESPONSE_WORK);
    let Command { request, queue, .. } = &mut command;
    if !queue.is_open() {
        sent::abandon_one(command, io);
    } else if queue.awaiting_send.is_empty() && claim_send(request, queue) {
        respond(command, &io.arena, now.at);
    } else {
        return Stop::Respond;
    }
    Stop::Nowhere
}

pub(in crate::reactor) fn enter(queues: &mut Queues, io: &Io, now: &Now, id: RequestId) {
    let qpair = queues.requests[id].qpair;
    let waiting = &mut queues.qpairs[qpair].awaiting_send;
    queues.requests.push_back(waiting, id, Stage::AwaitingSend);
    if lists::is_response(&queues.requests[id]) {
        pump_sends(queues, io, now, qpair);
    }
    if queues.requests[id].stage() == Stage::AwaitingSend {
        queues.count_wait(id, Wait::Send);
    }
}

/// Continues a response after WRITEs without SEND, and returns as [`sent::send_ended`].
pub(in crate::reactor) fn writes_ended(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    work: WorkId,
    status: WorkStatus,
) -> Result<Option<QpairId>, Broken> {
    let Command {
        id,
        request,
        queue,
        free,
        ..
    } = queues.command_of(work);
    let qpair = request.qpair;
    request.set_stage(Stage::Writing, Stage::Running);
    let work = request.send_work.into();
    queue.send_credits += work;
    free.give_back(work);
    queue.work_returned(now.at);
    if queue.is_open() && status.is_success() {
        enter(queues, io, now, id);
    } else {
        sent::abandon(queues, io, id);
    }
    if !status.is_success() {
        return Err(queues.work_failed(qpair, WorkKind::LastWrite, status));
    }
    let queue = &queues.qpairs[qpair];
    Ok((queue.is_open() && queue.has_waiting()).then_some(qpair))
}

pub(in crate::reactor) fn finish(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    id: RequestId,
    status: Status,
    result: u64,
) {
    if queues.requests[id].is_fused() {
        return finish_pair(queues, io, now, id, status);
    }
    if pass(queues.command(id), io, now, status, result) == Stop::Respond {
        enter(queues, io, now, id);
    }
}

pub(in crate::reactor) fn fail(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    id: RequestId,
    status: Status,
) {
    let request = &queues.requests[id];
    let sqe = &request.sqe;
    let association = queues.association(id);
    let of_blocks = request.block.is_some() || status.code() == Status::LBA_OUT_OF_RANGE;
    let failure = Failure {
        sqid: association.qid,
        cid: sqe.cid.get(),
        status,
        byte: None,
        lba: if of_blocks { sqe.cdw10_11() } else { 0 },
        nsid: sqe.nsid.get(),
    };
    association.controller.record_failure(failure);
    let result = match request.task {
        Task::Io(OperationKind::Copy) => copying::result_of_failure(queues, io, id),
        _ => 0,
    };
    finish(queues, io, now, id, status.with_more(), result);
}

/// Completes both commands of a pair in order, after `id` ended with `status`. Neither command may
/// be at a device or disk.
#[cold]
fn finish_pair(queues: &mut Queues, io: &mut Io, now: &Now, id: RequestId, status: Status) {
    let separated = queues.requests.separate(id);
    let (first, second, compared) = separated.expect("a fused command has a partner");
    for id in [first, second] {
        ordering::leave_at(queues, io, id);
    }
    match (id == first, compared) {
        (true, _) => finish(queues, io, now, first, status, 0),
        (false, true) => finish(queues, io, now, first, Status::SUCCESS, 0),
        (false, false) => fail(queues, io, now, first, Status::ABORTED_FAILED_FUSED),
    }
    match id == second {
        true => finish(queues, io, now, second, status, 0),
        false => fail(queues, io, now, second, Status::ABORTED_FAILED_FUSED),
    }
}

pub(in crate::reactor) fn pump_sends(queues: &mut Queues, io: &Io, now: &Now, qpair: QpairId) {
    loop {
        let queue = &mut queues.qpairs[qpair];
        let Some(id) = queue.awaiting_send.front() else {
            return;
        };
        let request = &mut queues.requests[id];
        let is_list = lists::is_response(request);
        let claimed = match is_list {
            true => lists::may_respond(queue),
            false => claim_send(request, queue),
        };
        if !claimed {
            return;
        }
        queues.requests.pop_front(&mut queue.awaiting_send);
        let mut command = queues.command(id);
        if !is_list {
            command.make_room(RESPONSE_WORK);
        } else if !lists::write(&mut command, &io.arena, now.at) {
            continue;
        }
        respond(command, &io.arena, now.at);
    }
}
