//! Admits capsules of hosts and namespaces within their shares of the request table
//! ([`shares`](crate::reactor::shares)).

use std::time::{Duration, Instant};

use nvme_proto::wire::{FromZeros, Sqe};

use crate::fair_queue::TURN;
use crate::ids::QpairId;
use crate::qpair::Capsule;
use crate::qpair::QueuePair;
use crate::reactor::disks::Disk;
use crate::reactor::io::Io;
use crate::reactor::port::Port;
use crate::reactor::queueing::capsule_queues::{CapsuleKey, CapsuleQueues};
use crate::reactor::queueing::limited::HostDisk;
use crate::reactor::queues::Queues;
use crate::reactor::shares::Stock;
use crate::reactor::time::Now;

pub(in crate::reactor) fn reserve(requests: usize) -> usize {
    (requests / 8).clamp(1, 64)
}

/// Time without progress of a host or disk after which its queued capsules are stuck. Healthy disks
/// are faster even with hundreds of commands.
pub(in crate::reactor) const STUCK_AFTER: Duration = Duration::from_millis(250);

/// Receives are short if less than 1/`SHORT` of them are posted.
const SHORT: usize = 4;

pub(in crate::reactor) fn may_go(
    queues: &mut Queues,
    io: &Io,
    now: &Now,
    mut capsule: Capsule,
) -> Option<Capsule> {
    let qpair = capsule.qpair;
    let nsid = nsid_of(&queues.qpairs[qpair], &capsule.sqe);
    let more = capsule.commands();
    if queues.capsule_queues.find(qpair, nsid).is_none() && may_begin(queues, io, qpair, nsid, more)
    {
        return Some(capsule);
    }
    queues.counters.request_waits.add(1);
    let port = queues.qpairs[qpair].port;
    let stuck = || {
        let queue = queues.capsule_queues.find(qpair, nsid);
        queue.is_some_and(|queue| is_stuck(queues, io, now, queue))
    };
    let stuck = receives_are_short(queues, port) && stuck();
    // The SQE was copied, so only in-capsule data needs the receive slot. A stuck capsule loses its
    // data.
    if (capsule.data_bytes == 0 || stuck)
        && let Some(slot) = capsule.slot.take()
    {
        queues.repost(port, slot);
    }
    let queue = &queues.qpairs[qpair];
    let association = queue.association.as_ref();
    let disk = association.and_then(|of| io.disks.find(of, nsid));
    let of = (queue.share, disk);
    queues.capsule_queues.wait(nsid, capsule, of, now.at);
    None
}

/// True if the capsule may bypass queued capsules: its queue pair has none, and its host has a
/// share and awaits no limit.
#[cold]
pub(in crate::reactor) fn goes_past(
    capsule_queues: &CapsuleQueues,
    io: &mut Io,
    now: &Now,
    (qpair, queue): (QpairId, &QueuePair),
    (port, slot): (&Port, u32),
) -> bool {
    let waits = |share| io.limited.waiting.has_owner(share);
    if capsule_queues.has_of(qpair) || queue.share.is_none_or(waits) {
        return false;
    }
    let mut sqe = Sqe::new_zeroed();
    port.slots().read_sqe(slot, &mut sqe);
    note_begun(queue, io, now, &sqe);
    true
}

pub(in crate::reactor) fn next(queues: &mut Queues, io: &Io) -> Option<Capsule> {
    while let Some((&CapsuleKey { qpair, nsid, .. }, capsule)) = queues.capsule_queues.first() {
        if may_begin(queues, io, qpair, nsid, capsule.commands()) {
            return Some(queues.capsule_queues.pop(TURN));
        }
        queues.capsule_queues.skip();
    }
    None
}

pub(in crate::reactor) fn may_begin(
    queues: &Queues,
    io: &Io,
    qpair: QpairId,
    nsid: u32,
    more: usize,
) -> bool {
    let queue = &queues.qpairs[qpair];
    let association = queue.association.as_ref();
    if association.is_none_or(|association| association.qid == 0) && queue.requests == 0 {
        return queues.requests.free() > 0;
    }
    let Some(stock) = stock(queues) else {
        return false;
    };
    if is_limited(queues, io, qpair, nsid) {
        return false;
    }
    let users = disk_of(queues, io, qpair, nsid).map_or(0, Disk::users);
    stock.free >= more && stock.allows(held_by_host(queues, io, qpair), users as usize, more)
}

fn may_take(queues: &Queues, io: &Io, qpair: QpairId, nsid: u32) -> (bool, bool) {
    let Some(stock) = stock(queues) else {
        return (false, false);
    };
    let users = disk_of(queues, io, qpair, nsid).map_or(0, Disk::users);
    (
        !is_limited(queues, io, qpair, nsid) && stock.allows(held_by_host(queues, io, qpair), 0, 1),
        stock.allows(0, users as usize, 1),
    )
}

/// True if many commands wait for limits, including commands of this host to this namespace.
fn is_limited(queues: &Queues, io: &Io, qpair: QpairId, nsid: u32) -> bool {
    let queue = &queues.qpairs[qpair];
    let association = queue.association.as_ref();
    let key = || HostDisk {
        share: queue.share,
        disk: association.and_then(|of| io.disks.find(of, nsid)),
    };
    io.limited.is_crowd() && io.limited.has_queued(&key())
}

fn stock(queues: &Queues) -> Option<Stock> {
    let free = queues.requests.free().checked_sub(queues.reserve)?;
    let total = queues.requests.capacity() - queues.reserve;
    (free > 0).then_some(Stock { total, free })
}

pub(in crate::reactor) fn held_by_host(queues: &Queues, io: &Io, qpair: QpairId) -> usize {
    let of_queue = |&queue: &QpairId| queues.qpairs[queue].requests as usize;
    match queues.qpairs[qpair].share {
        Some(share) => io.shares.queues(share).iter().map(of_queue).sum(),
        None => of_queue(&qpair),
    }
}

fn last_begun(
    queues: &Queues,
    io: &Io,
    qpair: QpairId,
    nsid: u32,
) -> (Option<Instant>, Option<Instant>) {
    let share = queues.qpairs[qpair].share;
    let host = share.and_then(|share| io.shares.last_begun(share));
    let disk = disk_of(queues, io, qpair, nsid);
    (host, disk.and_then(|disk| disk.last_begun))
}

pub(in crate::reactor) fn note_begun(queue: &QueuePair, io: &mut Io, now: &Now, sqe: &Sqe) {
    let nsid = nsid_of(queue, sqe);
    if let Some(share) = queue.share {
        io.shares.note_begun(share, now.at);
    }
    let association = queue.association.as_ref();
    if let Some(disk) = association.and_then(|of| io.disks.find(of, nsid)) {
        io.disks[disk].last_begun = Some(now.at);
    }
}

fn disk_of<'a>(queues: &Queues, io: &'a Io, qpair: QpairId, nsid: u32) -> Option<&'a Disk> {
    let association = queues.qpairs[qpair].association.as_ref()?;
    let disk = io.disks.find(association, nsid)?;
    Some(&io.disks[disk])
}

/// Returns the NSID of an I/O command, or 0. Fabrics commands have their type in this field.
fn nsid_of(queue: &QueuePair, sqe: &Sqe) -> u32 {
    let association = queue.association.as_ref();
    let is_io = association.is_some_and(|association| association.qid != 0);
    if is_io && !sqe.is_fabrics() {
        sqe.nsid.get()
    } else {
        0
    }
}

pub(in crate::reactor) fn receives_are_short(queues: &Queues, port: usize) -> bool {
    let port = queues.ports[port].as_ref();
    port.is_some_and(|port| port.slots_posted() * SHORT < port.slots().count() as usize)
}

pub(in crate::reactor) fn is_stuck(
    queues: &Queues,
    io: &Io,
    now: &Now,
    queue: &CapsuleKey,
) -> bool {
    // Connects and admin commands depend on no disk.
    if queue.nsid == 0 {
        return false;
    }
    let (host, disk) = last_begun(queues, io, queue.qpair, queue.nsid);
    let over = |since: Instant, begun: Option<Instant>| {
        let since = begun.map_or(since, |begun| begun.max(since));
        now.at.saturating_duration_since(since) >= STUCK_AFTER
    };
    let (host_may, disk_may) = may_take(queues, io, queue.qpair, queue.nsid);
    (!disk_may && over(queue.disk_since, disk)) || (!host_may && over(queue.host_since, host))
}
