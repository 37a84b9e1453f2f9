//! Deadlines of commands: for the disk, and for the host to send data and to accept a response.
//!
//! A late command at a disk is cancelled, but completes only when the disk has ended it.

use std::time::Duration;

use cairn_base::peer_line;
use cairn_disk::BlockOp;
use nvme_proto::wire::Status;

use crate::ids::QpairId;
use crate::reactor::io::Io;
use crate::reactor::lifecycle::aborting;
use crate::reactor::ordering;
use crate::reactor::queues::Queues;
use crate::reactor::stages::respond;
use crate::reactor::time::Now;
use crate::request::{Request, RequestId, Stage};

/// Time limit for a host's data, from when its READ can be posted.
const DATA_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit for a host's acceptance of a response. Exceeds [`crate::qpair::RESPONSE_TIMEOUT`],
/// because the last of many large reads arrives late on a slow link.
const TAKING_TIMEOUT: Duration = Duration::from_secs(120);

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
            Stage::AwaitingSend | Stage::Writing | Stage::Sending => {
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
        io.stop_block(request, id);
        return;
    }
    // Both statuses make the host retry: another path may reach the disk.
    let status = match request.stage() {
        Stage::AwaitingOlder => Status::ANA_TRANSITION,
        _ => Status::NAMESPACE_NOT_READY,
    };
    let of_it = |request: &Request| request.qpair == qpair && request.cid() == cid;
    for id in aborting::take_from_backend(queues, io, of_it) {
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
