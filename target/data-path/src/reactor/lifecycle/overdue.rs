//! Deadlines of commands: for the disk, and for the host to send data and to accept a response.
//!
//! A late command at a disk is cancelled, but completes only when the disk has ended it: until then
//! the disk may access its data.

use std::time::Duration;

use cairn_base::peer_line;
use cairn_disk::BlockOp;
use nvme_proto::wire::Status;

use crate::ids::QpairId;
use crate::reactor::aborts::Abort;
use crate::reactor::io::Io;
use crate::reactor::ordering;
use crate::reactor::queues::Queues;
use crate::reactor::stages::{respond, throttle};
use crate::reactor::time::Now;
use crate::request::{Request, RequestId, Stage};
use crate::work_id::WorkKind;

/// Time limit for a host's data, from the time at which its READ can be posted.
const DATA_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit for a host's acceptance of a response. The limit exceeds
/// [`crate::qpair::RESPONSE_TIMEOUT`], because the last of many large reads arrives late on a slow
/// link.
const TAKING_TIMEOUT: Duration = Duration::from_secs(120);

/// Time limit for a disk to end an aborted command; its Abort then completes as not aborted.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

pub(in crate::reactor) fn check_ages(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    io_timeout: Duration,
) -> Vec<(QpairId, &'static str)> {
    let nothing = queues.requests.in_use() == 0 && io.aborts.is_empty();
    if nothing && !io.disks.any_waits() {
        return Vec::new();
    }
    io.disks.forget_ages();
    let (mut late, mut silent) = (Vec::new(), Vec::new());
    for id in queues.requests.taken() {
        let request = &queues.requests[id];
        let age = Duration::from_nanos(request.times.here_for_ns(now.ns));
        match request.stage() {
            Stage::Reading | Stage::AwaitingRead if age >= DATA_TIMEOUT => {
                let reason = "the host did not send the data of a command in time";
                silent.push((request.qpair, reason));
            }
            Stage::AwaitingSend | Stage::Sending => {
                let done = Duration::from_nanos(request.times.done_for_ns(now.ns));
                if done >= TAKING_TIMEOUT {
                    let reason = "the host did not take the response of a command in time";
                    silent.push((request.qpair, reason));
                }
            }
            Stage::InBackend
            | Stage::AwaitingTurn
            | Stage::AwaitingRetry
            | Stage::AwaitingOlder => {
                let stopped = request.block.is_some_and(|block| block.is_stopped());
                if let Some(disk) = request.disk {
                    io.disks.note_age(disk, age);
                }
                if !stopped && !io_timeout.is_zero() && age >= io_timeout {
                    late.push((id, age));
                }
            }
            _ => {}
        }
    }
    io.disks.show_ages();
    for (id, age) in late {
        give_up(queues, io, now, id, age);
    }
    io.aborts.end_late(now.at);
    silent
}

fn give_up(queues: &mut Queues, io: &mut Io, now: &Now, id: RequestId, age: Duration) {
    report_late(queues, io, now, id, age);
    let request = &mut queues.requests[id];
    let (qpair, cid) = (request.qpair, request.cid());
    if request.stage() == Stage::InBackend {
        return io.stop_block(request, id);
    }
    // Both statuses make the host retry: another path may reach the disk.
    let status = match request.stage() {
        Stage::AwaitingOlder => Status::ANA_TRANSITION,
        _ => Status::NAMESPACE_NOT_READY,
    };
    let victims = Victims {
        qpair,
        cid,
        fused: Vec::new(),
    };
    for id in take_from_backend(queues, io, &victims) {
        ordering::leave_at(queues, io, id);
        respond::fail(queues, io, now, id, status);
    }
}

fn report_late(queues: &Queues, io: &mut Io, now: &Now, id: RequestId, age: Duration) {
    let request = &queues.requests[id];
    let disk = request.disk.expect("block I/O has a disk");
    let block = request.block;
    let op = block.map_or(BlockOp::Deallocate, |block| block.op);
    let (offset, length) = block.map_or((0, 0), |block| (block.offset, block.length));
    let waits = request.stage() == Stage::AwaitingOlder;
    let nsid = io.disks[disk].namespace.nsid;
    let Some(line) = io.disks[disk].failure_to_report(now.at) else {
        return;
    };
    let queue = &queues.qpairs[request.qpair];
    peer_line!(warn, line,
        host = queue.host_nqn(), subsystem = queue.subsystem_nqn(), nsid,
        op = %op, offset, length, age_s = age.as_secs(), waits_for_older = waits,
        "the disk has not answered a command in time: cancelling it"
    );
}

/// Completes the command, or cancels it at its disk. Several commands may match: a non-compliant
/// host may reuse a CID.
pub(in crate::reactor) fn abort(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    qpair: QpairId,
    cid: u16,
    abort_cid: u16,
) {
    let Some(queue) = queues.qpairs.get(qpair) else {
        return;
    };
    let Some(association) = queue.association.clone() else {
        return;
    };
    let victims = Victims::with_partners(queues, qpair, cid);
    let victim = |request: &Request| victims.has(request);
    let fetches =
        |request: &Request| matches!(request.stage(), Stage::AwaitingRead | Stage::Reading);
    let is_fetching = |&id: &RequestId| {
        let request = &queues.requests[id];
        let partner = request.fused.partner();
        fetches(request) || partner.is_some_and(|partner| fetches(&queues.requests[partner]))
    };
    // The device uses the buffer of the pair, or is about to.
    if victims.fused.iter().any(is_fetching) {
        let (cntlid, subsystem) = (association.controller.cntlid(), association.subsystem);
        return subsystem.abort_done(cntlid, abort_cid, false);
    }
    let mut found = Vec::new();
    let mut take = |id| found.push(id);
    throttle::take_out(queues, io, victim, &mut take);
    let requests = &mut queues.requests;
    requests.take_out(&mut io.awaiting_buffer, victim, &mut take);
    io.shares.take_out(requests, victim, &mut take);
    let reads = &mut queues.qpairs[qpair].awaiting_read;
    requests.take_out(reads, victim, &mut take);
    take_from_backend(queues, io, &victims)
        .into_iter()
        .for_each(take);
    let aborted = !found.is_empty();
    let abort = Abort {
        tag: 0,
        subsystem: association.subsystem,
        cntlid: association.controller.cntlid(),
        abort_cid,
        until: now.at + ABORT_TIMEOUT,
    };
    if !aborted && let Some(tag) = stop_in_backend(queues, io, &victims) {
        return io.aborts.add(Abort { tag, ..abort });
    }
    for id in found {
        ordering::leave_at(queues, io, id);
        let partner = queues.requests[id].fused.partner();
        let named = partner.filter(|partner| victims.fused.contains(partner));
        let id = named.unwrap_or(id);
        respond::finish(queues, io, now, id, Status::ABORT_REQUESTED, 0);
    }
    abort.answer(aborted);
}

struct Victims {
    qpair: QpairId,
    cid: u16,
    /// Fused commands with the CID.
    fused: Vec<RequestId>,
}

impl Victims {
    fn with_partners(queues: &Queues, qpair: QpairId, cid: u16) -> Self {
        let requests = &queues.requests;
        let is_one = |&id: &RequestId| requests[id].cid() == cid && requests[id].is_fused();
        let fused = requests.of_qpair(qpair).filter(is_one).collect();
        Self { qpair, cid, fused }
    }

    fn has(&self, request: &Request) -> bool {
        let is_partner = |partner| self.fused.contains(&partner);
        request.qpair == self.qpair
            && (request.cid() == self.cid || request.fused.partner().is_some_and(is_partner))
    }
}

fn take_from_backend(queues: &mut Queues, io: &mut Io, victims: &Victims) -> Vec<RequestId> {
    let victim = |request: &Request| victims.has(request);
    let mut found = Vec::new();
    io.retries
        .take_out(&mut queues.requests, victim, |id| found.push(id));
    io.older
        .take_out(&mut queues.requests, victim, |id| found.push(id));
    io.disks
        .take_waiting(&mut queues.requests, victim, |id| found.push(id));
    found
}

fn stop_in_backend(queues: &mut Queues, io: &mut Io, victims: &Victims) -> Option<u64> {
    let requests = &mut queues.requests;
    let id = requests.of_qpair(victims.qpair).find(|&id| {
        let request = &requests[id];
        request.stage() == Stage::InBackend && victims.has(request)
    })?;
    io.stop_block(&mut requests[id], id);
    Some(requests.work_id(id, WorkKind::Block))
}

impl Io {
    fn stop_block(&mut self, request: &mut Request, id: RequestId) {
        let tag = request.work_id(id, WorkKind::Block);
        let block = request.block.as_mut();
        block.expect("block I/O is planned").stop();
        self.ring.cancel(tag);
    }
}
