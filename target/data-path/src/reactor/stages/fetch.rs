//! Stage 4: RDMA READ of data that did not arrive in the capsule.

use cairn_rdma::{Operation, RemoteBuffer, SendWork, Sge, SgeList, WorkStatus};
use nvme_proto::transfer::DataTransfer;

use super::disk;
use super::lists;
use super::sent;
use crate::ids::QpairId;
use crate::reactor::command::{Command, Stop};
use crate::reactor::io::Io;
use crate::reactor::queues::{Broken, Queues, Wait};
use crate::reactor::time::Now;
use crate::registry::KEEP_ALIVE_EXPIRED;
use crate::request::{Fused, RequestId, Stage};
use crate::work_id::{WorkId, WorkKind};

#[inline(always)]
pub(in crate::reactor) fn pass(command: Command<'_>, io: &mut Io, now: &Now) -> Stop {
    let request = &mut *command.request;
    request.times.held(now.ns);
    match request.transfer {
        DataTransfer::FromHost(_) | DataTransfer::FromHostList(_) => Stop::Fetch,
        DataTransfer::InCapsule(_) if request.data.is_some() => Stop::Fetch,
        DataTransfer::None
        | DataTransfer::InCapsule(_)
        | DataTransfer::ToHost(_)
        | DataTransfer::ToHostList(_) => disk::pass(command, io, now),
    }
}

pub(in crate::reactor) fn enter(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    id: RequestId,
) -> Stop {
    let request = &mut queues.requests[id];
    if let Fused::First { second, .. } = request.fused {
        fetch_pair(queues, io, now, id, second);
        return Stop::Nowhere;
    }
    if matches!(request.transfer, DataTransfer::InCapsule(_)) {
        let to = io.data_span(request);
        io.ring.copy_span(queues.capsule_span(id), to);
        let mut command = queues.command(id);
        command.release_receive();
        return disk::pass(command, io, now);
    }
    match request.transfer {
        DataTransfer::FromHostList(_) => read_list(queues, io, now, id),
        _ => read(queues, io, now, id),
    }
    Stop::Nowhere
}

#[cold]
fn read_list(queues: &mut Queues, io: &Io, now: &Now, id: RequestId) {
    let queue = &mut queues.qpairs[queues.requests[id].qpair];
    match queue.awaiting_read.is_empty() && queue.may_read() {
        true => lists::begin_reads(queues.command(id), io, now.at),
        false => wait(queues, id),
    }
}

fn read(queues: &mut Queues, io: &Io, now: &Now, id: RequestId) {
    let queue = &mut queues.qpairs[queues.requests[id].qpair];
    if queue.awaiting_read.is_empty() && queue.may_read() {
        return begin_read(queues.command(id), io, now);
    }
    wait(queues, id);
}

#[inline(always)]
fn wait(queues: &mut Queues, id: RequestId) {
    let queue = &mut queues.qpairs[queues.requests[id].qpair];
    let waiting = &mut queue.awaiting_read;
    queues.requests.push_back(waiting, id, Stage::AwaitingRead);
    queues.count_wait(id, Wait::Read);
}

#[cold]
fn fetch_pair(queues: &mut Queues, io: &mut Io, now: &Now, first: RequestId, second: RequestId) {
    let requests = &mut queues.requests;
    requests.set_stage(second, Stage::AwaitingPartner, Stage::Running);
    let parts = io.pair_spans(&requests[first]);
    let port = queues.port(queues.qpairs[queues.requests[first].qpair].port);
    let lkey = port.arena_lkey();
    let request = &mut queues.requests[second];
    request.times.held(now.ns);
    request.window = Some(Sge {
        addr: parts[1].addr,
        length: parts[1].length,
        lkey,
    });
    for (id, to) in [first, second].into_iter().zip(parts) {
        let transfer = queues.requests[id].transfer;
        if matches!(transfer, DataTransfer::InCapsule(_)) {
            io.ring.copy_span(queues.capsule_span(id), to);
            queues.command(id).release_receive();
            disk::part_arrived(queues, io, now, id);
        } else if matches!(transfer, DataTransfer::FromHostList(_)) {
            read_list(queues, io, now, id);
        } else {
            read(queues, io, now, id);
        }
    }
}

pub(in crate::reactor) fn pump_reads(queues: &mut Queues, io: &mut Io, now: &Now, qpair: QpairId) {
    loop {
        let queue = &mut queues.qpairs[qpair];
        if !queue.may_read() {
            return;
        }
        let Some(id) = queues.requests.pop_front(&mut queue.awaiting_read) else {
            return;
        };
        if matches!(queues.requests[id].transfer, DataTransfer::FromHostList(_)) {
            lists::begin_reads(queues.command(id), io, now.at);
        } else {
            begin_read(queues.command(id), io, now);
        }
    }
}

fn begin_read(mut command: Command<'_>, io: &Io, now: &Now) {
    let queue = &mut *command.queue;
    queue.read_credits -= 1;
    queue.send_credits -= 1;
    queue.work_posted(now.at);
    let port = command.port().expect("an open queue pair has a port");
    let lkey = port.arena_lkey();
    let request = &*command.request;
    let DataTransfer::FromHost(remote) = request.transfer else {
        unreachable!("lists are READ elsewhere");
    };
    let work = SendWork {
        id: request.work_id(command.id, WorkKind::Read),
        op: Operation::Read(RemoteBuffer {
            addr: remote.address,
            rkey: remote.rkey,
        }),
        sges: SgeList::one(request.local_data(&io.arena, lkey, remote.length)),
        signaled: true,
    };
    command.push_read(work);
}

/// Returns the queue pair if requests wait for its credits, or an error if the queue pair must be
/// closed.
pub(in crate::reactor) fn read_ended(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    work: WorkId,
    status: WorkStatus,
) -> Result<Option<QpairId>, Broken> {
    let mut command = queues.command_of(work);
    let (id, qpair) = (command.id, command.request.qpair);
    let Command { request, queue, .. } = &mut command;
    request.set_stage(Stage::Reading, Stage::Running);
    request.times.fetched(now.ns);
    queue.read_credits += 1;
    queue.send_credits += 1;
    queue.work_returned(now.at);
    let (is_open, is_over) = (queue.is_open(), queue.is_over(now.ns));
    let others_wait = is_open && queue.has_waiting();
    if is_open && !is_over && status.is_success() {
        disk::enter(queues, io, now, id);
        return Ok(others_wait.then_some(qpair));
    }
    sent::abandon(queues, io, id);
    if !status.is_success() {
        return Err(queues.work_failed(qpair, WorkKind::Read, status));
    }
    if is_open {
        let ending = Some(KEEP_ALIVE_EXPIRED);
        return Err(Broken { qpair, ending });
    }
    Ok(others_wait.then_some(qpair))
}

/// Ends a step of a list: READs the next pieces, or returns as [`read_ended`].
#[cold]
pub(in crate::reactor) fn list_read_ended(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    work: WorkId,
    status: WorkStatus,
) -> Result<Option<QpairId>, Broken> {
    let mut command = queues.command_of(work);
    let (id, qpair) = (command.id, command.request.qpair);
    let remain = lists::reads_ended(&mut command);
    let Command { request, queue, .. } = command;
    if !remain || !queue.is_open() || queue.is_over(now.ns) || !status.is_success() {
        return read_ended(queues, io, now, work, status);
    }
    request.set_stage(Stage::Reading, Stage::Running);
    queue.read_credits += 1;
    queue.send_credits += 1;
    queue.work_returned(now.at);
    read_list(queues, io, now, id);
    let others_wait = queues.qpairs[qpair].has_waiting();
    Ok(others_wait.then_some(qpair))
}
