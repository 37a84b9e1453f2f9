//! Rate limits, applied between plan and buffers. A waiting command holds no buffer, and its time
//! limit at the disk has not begun.

use super::buffers;
use crate::limits::{Bill, Limiter, Tokens};
use crate::reactor::count;
use crate::reactor::io::Io;
use crate::reactor::ordering;
use crate::reactor::queues::{Queues, Wait};
use crate::reactor::time::Now;
use crate::request::{Request, RequestId, Task};
use cairn_disk::BlockOp;
use nvme_proto::io::OperationKind;

fn bill(request: &Request) -> Option<Bill> {
    let bytes = request.disk_bytes;
    let Task::Io(kind) = request.task else {
        return None;
    };
    match kind {
        OperationKind::Flush(_) => None,
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
    }
}

/// Calls `each` for a command's limiters, the most widely shared last, with this reactor's tokens.
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

/// Charges a command to its limits. The error is the time of the next attempt, in nanoseconds.
fn try_pay(
    queues: &Queues,
    io: &mut Io,
    now: &Now,
    id: RequestId,
    bill: &Bill,
) -> Result<u64, u64> {
    let mut at = 0;
    each_limit(queues, io, id, |limiter, tokens| {
        if let Err(then) = tokens.provide(limiter, bill, now.ns) {
            at = at.max(then);
        }
    });
    if at > 0 {
        return Err(at);
    }
    let mut cost_ns = 0;
    each_limit(queues, io, id, |limiter, tokens| {
        // The cost at the last limiter counts, because most queues share it.
        match tokens.pay(limiter, bill) {
            0 => {}
            cost => cost_ns = cost,
        }
    });
    Ok(cost_ns)
}

fn has_limit(queues: &Queues, io: &Io, id: RequestId) -> bool {
    let disk = queues.requests[id].disk;
    let disk = &io.disks[disk.expect("a command with a limit has a disk")];
    let association = queues.association(id);
    disk.namespace.limiter.is_limited()
        || association.subsystem.limiter.is_limited()
        || association.controller.limiter.is_limited()
}

#[cold]
pub(in crate::reactor) fn enter(queues: &mut Queues, io: &mut Io, now: &Now, id: RequestId) {
    if ordering::is_ordered(queues, id) {
        ordering::planned(queues, io, id);
    }
    let limited = has_limit(queues, io, id);
    let Some(bill) = bill(&queues.requests[id]).filter(|_| limited) else {
        return buffers::acquire(queues, io, now, id);
    };
    let share = queues.command(id).share();
    let disk = queues.requests[id].disk;
    let key = (share, disk.expect("a command with a limit has a disk"));
    if io.disks[key.1].namespace.depth.is_limited() {
        let request = &mut queues.requests[id];
        request.restrictions = request.restrictions.limited();
    }
    if io.limited.is_empty() {
        each_limit(queues, io, id, |_, tokens| tokens.forget_awaited());
    }
    if !io.limited.has_queued(key.0, key.1) && !is_awaited(queues, io, id, &bill) {
        match try_pay(queues, io, now, id, &bill) {
            Ok(_) => return buffers::acquire(queues, io, now, id),
            Err(at) => io.limited.look_at(at),
        }
    }
    queues.count_wait(id, Wait::Limit);
    io.limited.wait(&mut queues.requests, id, key);
}

#[inline(always)]
pub(in crate::reactor) fn serve(queues: &mut Queues, io: &mut Io, now: &Now) -> bool {
    now.ns >= io.limited.next_ns && serve_lines(queues, io, now)
}

#[cold]
fn serve_lines(queues: &mut Queues, io: &mut Io, now: &Now) -> bool {
    io.limited.next_ns = u64::MAX;
    for at in 0..io.limited.len() {
        if let Some(id) = io.limited.queue(at).front() {
            each_limit(queues, io, id, |_, tokens| tokens.forget_awaited());
        }
    }
    let mut any = false;
    loop {
        let mut went = false;
        for at in 0..io.limited.sorted().len() {
            went |= take_turn(queues, io, now, at);
        }
        if !went {
            break;
        }
        any = true;
    }
    io.limited.tidy();
    any
}

/// Continues one queue's commands until its turn ends or a limit blocks the first. Returns whether
/// any continued.
fn take_turn(queues: &mut Queues, io: &mut Io, now: &Now, at: usize) -> bool {
    let mut any = false;
    let end = io.limited.queue(at).end_of_turn();
    while io.limited.queue(at).taken_ns() < end
        && let Some(id) = io.limited.queue(at).front()
    {
        let bill = bill(&queues.requests[id]).expect("what waits for a limit has a bill");
        if is_awaited(queues, io, id, &bill) {
            return any;
        }
        match try_pay(queues, io, now, id, &bill) {
            Ok(cost_ns) => {
                // Divided by the weight, so that queues with a larger weight are served more often.
                let weight = queues.association(id).controller.limiter.weight();
                io.limited
                    .pop(&mut queues.requests, at, cost_ns / u64::from(weight));
                let request = &queues.requests[id];
                let waited_ns = request.times.seen_for_ns(now.ns);
                count::limit_wait(request, queues.association(id), &io.disks, waited_ns);
                buffers::acquire(queues, io, now, id);
                any = true;
            }
            Err(at) => {
                io.limited.look_at(at);
                return any;
            }
        }
    }
    any
}

pub(in crate::reactor) fn take_out(
    queues: &mut Queues,
    io: &mut Io,
    goes: impl Fn(&Request) -> bool,
    mut each: impl FnMut(RequestId),
) {
    let mut gone = Vec::new();
    io.limited
        .take_out(&mut queues.requests, goes, |id| gone.push(id));
    for id in gone {
        each_limit(queues, io, id, |_, tokens| {
            tokens.clip();
            tokens.forget_awaited();
        });
        each(id);
    }
    io.limited.next_ns = 0;
}
