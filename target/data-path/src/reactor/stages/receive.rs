//! Stage 1: allocates a request for an arrived capsule, with a permit for one completion.

use cairn_rdma::{Completion, WorkStatus};
use nvme_proto::controller::Completion as CommandEnd;
use nvme_proto::fused::{Arrived, Part};
use nvme_proto::wire::sqe::SQE_BYTES;
use nvme_proto::wire::{FromZeros, Sqe, Status, U16};

use super::admission;
use super::fused;
use super::gates;
use super::plan;
use super::respond;
use crate::ending::Ending;
use crate::ids::QpairId;
use crate::metrics::StageTimes;
use crate::qpair::Capsule;
use crate::qpair::QueuePair;
use crate::reactor::command::{Command, Stop};
use crate::reactor::io::Io;
use crate::reactor::queues::{Broken, Queues};
use crate::reactor::time::Now;
use crate::registry::KEEP_ALIVE_EXPIRED;
use crate::request::Task;
use crate::work_id::WorkKind;

/// Time limit for the second of two fused commands, whose packet may be retransmitted.
const PARTNER_WAIT_NS: u64 = 1_000_000_000;

#[inline]
fn accept(queue: &mut QueuePair, completion: &Completion) -> Result<u32, Ending> {
    if completion.status != WorkStatus::Success {
        // A capsule larger than the receive breaks the queue pair.
        return Err(Ending::Work(WorkKind::Receive, completion.status));
    }
    let Some(data_bytes) = completion.byte_len.checked_sub(SQE_BYTES as u32) else {
        return Err(Ending::Fault(
            "the host sent a capsule that is shorter than a command",
        ));
    };
    queue.command_begins();
    if queue.outstanding > u32::from(queue.entries) {
        return Err(Ending::Fault(
            "the host has more commands outstanding than its queue has entries",
        ));
    }
    Ok(data_bytes)
}

pub(in crate::reactor) fn capsule_arrived(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    index: usize,
    slot: u32,
    completion: &Completion,
) -> Result<(), Broken> {
    let Some(port) = &mut queues.ports[index] else {
        return Ok(());
    };
    port.slot_filled();
    let Some(qpair) = port.qpair(completion.qp) else {
        port.repost(slot);
        return Ok(());
    };
    let queue = &mut queues.qpairs[qpair];
    if !queue.is_open() || queues.draining || completion.status == WorkStatus::Flushed {
        port.repost(slot);
        return Ok(());
    }
    let accepted = if queue.extend_lease(now.ns) {
        accept(queue, completion)
    } else {
        Err(KEEP_ALIVE_EXPIRED)
    };
    let data_bytes = match accepted {
        Ok(data_bytes) => data_bytes,
        Err(ending) => {
            port.repost(slot);
            let ending = Some(ending);
            return Err(Broken { qpair, ending });
        }
    };
    // With at least `plenty` free requests, every host is within its share.
    let free = queues.requests.free();
    let waiting = &queues.capsule_queues;
    let some_wait = !waiting.is_empty() || io.limited.is_crowd();
    let is_fused = queue.pairing.waiting().is_some() || port.slots().fuse(slot) != 0;
    if is_fused
        || free < queues.plenty
        || (some_wait && !admission::goes_past(waiting, io, now, (qpair, queue), (port, slot)))
    {
        pair_or_admit(queues, io, now, qpair, (slot, data_bytes));
        return Ok(());
    }
    queue.requests += 1;
    let mut taken = queues.requests.take();
    port.slots().read_sqe(slot, taken.sqe());
    let (id, request, free) = taken.begin(qpair);
    request.in_capsule_bytes = data_bytes;
    request.times = StageTimes::seen(now.ns);
    if data_bytes == 0 {
        port.repost(slot);
    } else {
        request.receive = Some(slot);
    }
    let command = Command {
        id,
        request,
        queue,
        ports: &mut queues.ports,
        free,
        dirty: &mut queues.dirty,
        lost: &mut queues.lost,
        ended: &mut queues.ended,
    };
    let stop = plan::pass(command, io, now);
    if stop != Stop::Nowhere {
        gates::resume(queues, io, now, id, stop);
    }
    Ok(())
}

#[cold]
fn pair_or_admit(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    qpair: QpairId,
    (slot, data_bytes): (u32, u32),
) {
    let port = queues.qpairs[qpair].port;
    let mut sqe = Sqe::new_zeroed();
    queues.port(port).slots().read_sqe(slot, &mut sqe);
    if data_bytes == 0 {
        queues.repost(port, slot);
    }
    let capsule = Capsule {
        qpair,
        slot: (data_bytes > 0).then_some(slot),
        sqe,
        data_bytes,
        seen_ns: now.ns,
        first: None,
    };
    let queue = &mut queues.qpairs[qpair];
    let is_io = queue.association.as_ref().is_some_and(|of| of.qid != 0);
    let part = Part::of(&sqe).filter(|_| is_io);
    let (missed, arrived) = queue.pairing.arrive(part, capsule);
    let ready = match arrived {
        Arrived::Waits => None,
        Arrived::Alone(capsule) => Some(capsule),
        Arrived::Pair(first, second) => Some(Capsule {
            first: Some(Box::new(first)),
            ..second
        }),
    };
    for capsule in missed.into_iter().chain(ready) {
        wait_or_admit(queues, io, now, capsule);
    }
}

fn wait_or_admit(queues: &mut Queues, io: &mut Io, now: &Now, capsule: Capsule) {
    if let Some(capsule) = admission::may_go(queues, io, now, capsule) {
        admit(queues, io, now, capsule);
    }
}

pub(in crate::reactor) fn end_unpaired(queues: &mut Queues, io: &mut Io, now: &Now) {
    let is_late = |first: &Capsule| now.ns.saturating_sub(first.seen_ns) >= PARTNER_WAIT_NS;
    let qpairs = &queues.qpairs;
    let late = qpairs.ids();
    let late = late.filter(|&id| qpairs[id].pairing.waiting().is_some_and(is_late));
    for qpair in late.collect::<Vec<_>>() {
        if let Some(first) = queues.qpairs[qpair].pairing.take() {
            wait_or_admit(queues, io, now, first);
        }
    }
}

pub(in crate::reactor) fn admit(queues: &mut Queues, io: &mut Io, now: &Now, mut capsule: Capsule) {
    if let Some(first) = capsule.first.take() {
        return fused::admit(queues, io, now, &first, &capsule);
    }
    let id = queues.take_on(&capsule);
    if capsule.is_data_dropped() {
        return respond::fail(queues, io, now, id, Status::NAMESPACE_NOT_READY);
    }
    admission::note_begun(&queues.qpairs[capsule.qpair], io, now, &capsule.sqe);
    let stop = plan::pass(queues.command(id), io, now);
    gates::resume(queues, io, now, id, stop);
}

#[inline]
pub(in crate::reactor) fn serve_late(queues: &mut Queues, io: &mut Io, now: &Now) {
    while !queues.requests.is_full()
        && let Some((qpair, completion)) = queues.late.pop_front()
    {
        complete_late(queues, io, now, qpair, completion);
    }
}

fn complete_late(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    qpair: QpairId,
    completion: CommandEnd,
) {
    if !queues.qpairs.get(qpair).is_some_and(QueuePair::is_open) {
        return;
    }
    let sqe = Sqe {
        cid: U16::new(completion.cid),
        ..Sqe::new_zeroed()
    };
    let mut taken = queues.requests.take();
    *taken.sqe() = sqe;
    let (id, request, _) = taken.begin(qpair);
    request.task = Task::LateCompletion;
    let queue = &mut queues.qpairs[qpair];
    queue.requests += 1;
    queue.command_begins();
    respond::finish(queues, io, now, id, completion.status, completion.result);
}
