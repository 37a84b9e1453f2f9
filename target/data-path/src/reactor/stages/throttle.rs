//! Rate limits, applied between plan and buffers. `io_timeout` begins later. Of the waiting
//! commands, only a Copy holds a buffer.

use super::buffers;
use crate::limits::{Bill, Limiter, Tokens};
use crate::reactor::command::Stop;
use crate::reactor::count;
use crate::reactor::io::Io;
use crate::reactor::ordering;
use crate::reactor::queueing::limited::HostDisk;
use crate::reactor::queues::{Queues, Wait};
use crate::reactor::time::Now;
use crate::request::{Request, RequestId, Stage, Task};
use cairn_disk::BlockOp;
use nvme_proto::io::OperationKind;

fn bill(request: &Request) -> Option<Bill> {
    let bytes = request.disk_bytes;
    let Task::Io(kind) = request.task else {
        return None;
    };
    match kind {
        OperationKind::Flush(_) => None,
        OperationKind::Compare if request.is_fused() => Some(Bill::new(bytes, bytes)),
        OperationKind::Read | OperationKind::Compare | OperationKind::Verify => {
            Some(Bill::new(bytes, 0))
        }
        OperationKind::Write | OperationKind::WriteUncorrectable => Some(Bill::new(0, bytes)),
        OperationKind::WriteZeroes => {
            let op = request.block.as_ref().map(|block| block.op);
            let frees = matches!(
                op,
                Some(BlockOp::WriteZeroes {
                    deallocate: true,
                    ..
                })
            );
            Some(Bill::new(0, if frees { 0 } else { bytes }))
        }
        OperationKind::DatasetManagement { .. } => Some(Bill::new(0, 0)),
        // A Copy is charged once its source ranges have arrived.
        OperationKind::Copy => (bytes > 0).then(|| Bill::new(bytes, bytes)),
    }
}

/// Calls `each` for each limiter of the command. The limiter shared by the most hosts is last.
fn each_limit(
    queues: &Queues,
    io: &mut Io,
    id: RequestId,
    mut each: impl FnMut(&Limiter, &mut Tokens),
) {
    let disk = queues.requests[id].disk;
    let disk = &mut io.disks[disk.expect("a command with a limit has a disk")];
    each(&disk.namespace.limiter, &mut disk.tokens);
    let association = queues.association(id);
    let (subsystem, controller) = (&association.subsystem, &association.controller);
    let share = queues.qpairs[queues.requests[id].qpair].share;
    if let Some(share) = share.filter(|_| controller.limiter.is_limited()) {
        each(&controller.limiter, io.shares.tokens(share, subsystem.id));
    }
    if subsystem.limiter.is_limited() {
        each(&subsystem.limiter, io.disks.tokens(subsystem.id));
    }
}

fn is_awaited(queues: &Queues, io: &mut Io, id: RequestId, bill: &Bill) -> bool {
    let mut awaited = false;
    each_limit(queues, io, id, |limiter, tokens| {
        awaited |= tokens.is_awaited(limiter, bill);
    });
    awaited
}

/// Charges a command to its limits and returns its cost; `None` if it must wait. Without tokens,
/// schedules the next attempt.
fn try_pay(queues: &Queues, io: &mut Io, now: &Now, id: RequestId, bill: &Bill) -> Option<u64> {
    if is_awaited(queues, io, id, bill) {
        return None;
    }
    let mut at = 0;
    each_limit(queues, io, id, |limiter, tokens| {
        if let Err(then) = tokens.provide(limiter, bill, now.ns) {
            at = at.max(then);
        }
    });
    if at > 0 {
        io.limited.look_at(at);
        return None;
    }
    let mut cost_ns = 0;
    each_limit(queues, io, id, |limiter, tokens| {
        // The last limiter with a cost determines `cost_ns`.
        match tokens.pay(limiter, bill) {
            0 => {}
            cost => cost_ns = cost,
        }
    });
    Some(cost_ns)
}

#[cold]
pub(in crate::reactor) fn enter(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    id: RequestId,
) -> Stop {
    if ordering::is_ordered(queues, io, id) {
        ordering::planned(queues, io, id);
    }
    let disk = queues.requests[id].disk;
    let disk = &io.disks[disk.expect("a command with a limit has a disk")];
    let limited = disk.has_limit(queues.association(id));
    let Some(bill) = bill(&queues.requests[id]).filter(|_| limited) else {
        return buffers::pass(queues.command(id), io, now);
    };
    let share = queues.command(id).share();
    let request = &mut queues.requests[id];
    let disk = request.disk;
    let key = HostDisk { share, disk };
    if io.disks[disk.expect("a command with a limit has a disk")]
        .namespace
        .depth
        .is_limited()
    {
        request.restrictions = request.restrictions.limited();
    }
    if io.limited.waiting.is_empty() {
        each_limit(queues, io, id, |_, tokens| tokens.forget_awaited());
    }
    if !io.limited.has_queued(&key) && try_pay(queues, io, now, id, &bill).is_some() {
        return buffers::pass(queues.command(id), io, now);
    }
    queues.count_wait(id, Wait::Limit);
    let (requests, waiting) = (&mut queues.requests, &mut io.limited.waiting);
    waiting.push_request(requests, key, id, Stage::AwaitingLimit);
    Stop::Nowhere
}

pub(in crate::reactor) fn wake(queues: &Queues, io: &mut Io) {
    io.limited.next_ns = u64::MAX;
    let mut waiting = std::mem::take(&mut io.limited.waiting);
    for (_, ids) in waiting.keys() {
        each_limit(queues, io, ids[0], |_, tokens| tokens.forget_awaited());
    }
    waiting.wake();
    io.limited.waiting = waiting;
}

pub(in crate::reactor) fn next(queues: &mut Queues, io: &mut Io, now: &Now) -> Option<RequestId> {
    while let Some((_, &id)) = io.limited.waiting.first() {
        let bill = bill(&queues.requests[id]).expect("what waits for a limit has a bill");
        let Some(cost_ns) = try_pay(queues, io, now, id, &bill) else {
            io.limited.waiting.skip();
            continue;
        };
        let weight = queues.association(id).controller.limiter.weight();
        let (requests, waiting) = (&mut queues.requests, &mut io.limited.waiting);
        waiting.pop_request(requests, (cost_ns, weight));
        let request = &queues.requests[id];
        let waited_ns = request.times.seen_for_ns(now.ns);
        count::limit_wait(request, queues.association(id), &io.disks, waited_ns);
        return Some(id);
    }
    None
}

pub(in crate::reactor) fn take_out(
    queues: &mut Queues,
    io: &mut Io,
    goes: impl Fn(&Request) -> bool,
    mut each: impl FnMut(RequestId),
) {
    let mut gone = Vec::new();
    let (requests, waiting) = (&mut queues.requests, &mut io.limited.waiting);
    waiting.take_out_requests(requests, goes, |id| gone.push(id));
    for id in gone {
        each_limit(queues, io, id, |_, tokens| {
            tokens.clip();
            tokens.forget_awaited();
        });
        each(id);
    }
    io.limited.next_ns = 0;
}
