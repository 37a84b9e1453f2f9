use nvme_proto::transfer::DataTransfer;
use nvme_proto::wire::Status;

use super::Reactor;
use super::disks::Disks;
use crate::metrics::{Doing, Op};
use crate::qpair::Association;
use crate::request::{Request, Task};

impl Reactor {
    pub(super) fn count_time(&mut self, now_ns: u64) -> u64 {
        let passed_ns = now_ns - self.time.now.ns;
        self.queues.counters.time_ns[self.time.doing as usize].add(passed_ns);
        self.io.disks.count_busy(passed_ns);
        self.time.now.ns = now_ns;
        passed_ns
    }

    pub(super) fn count_round(&mut self, busy: bool) {
        self.queues.counters.rounds.add(1);
        self.time.doing = if busy { Doing::Work } else { Doing::Poll };
        if busy {
            let counters = &self.queues.counters;
            counters.queue_pairs.set(self.queues.qpairs.len() as u64);
            counters.requests.set(self.queues.requests.in_use() as u64);
            let used = self.io.arena.taken_bytes() as u64;
            counters.buffer_used_bytes.set(used);
        }
    }
}

pub(super) fn limit_wait(
    request: &Request,
    association: &Association,
    disks: &Disks,
    waited_ns: u64,
) {
    if let Some(disk) = request.disk {
        let counters = &disks[disk].counters;
        counters.limit_waits.add(1);
        counters.limit_wait_ns.add(waited_ns);
    }
    association.queue.counters.limit_wait_ns.add(waited_ns);
}

#[inline(always)]
pub(super) fn count_end(
    request: &Request,
    status: Status,
    association: Option<&Association>,
    disks: &Disks,
) {
    let Some(association) = association else {
        return;
    };
    match request.task {
        Task::Io(kind) if status.is_success() => {
            count_success(request, Op::of(kind), association, disks);
        }
        _ => count_other(request, status, association, disks),
    }
}

#[inline(always)]
fn count_success(request: &Request, op: Op, association: &Association, disks: &Disks) {
    let bytes = request.disk_bytes;
    association.queue.counters.succeeded(op.class(), bytes);
    if let Some(disk) = request.disk {
        let disk = &disks[disk];
        disk.counters.succeeded(op, bytes);
        disk.smart.succeeded(op, bytes);
    }
}

#[cold]
fn count_other(request: &Request, status: Status, association: &Association, disks: &Disks) {
    match request.task {
        Task::Connect | Task::Authenticate(_) => {}
        _ if status.is_success() => association.queue.counters.succeeded_admin(),
        _ => {
            association.queue.counters.failed(status);
            // A refused command has no disk yet, so the disk is looked up by NSID.
            if association.qid != 0
                && let Some(disk) = disks.find(association, request.sqe.nsid.get())
            {
                disks[disk].counters.failed(status);
            }
        }
    }
}

#[inline]
pub(super) fn count_latency(
    request: &Request,
    association: Option<&Association>,
    disks: &Disks,
    now_ns: u64,
) {
    let Task::Io(kind) = request.task else {
        return;
    };
    if !request.completion.status.is_success() {
        return;
    }
    let whole = request.times.whole(now_ns);
    let class = Op::of(kind).class();
    if let Some(association) = association {
        association.queue.counters.went(class, whole);
    }
    if let Some(disk) = request.disk {
        let fetched = matches!(
            request.transfer,
            DataTransfer::FromHost(_) | DataTransfer::FromHostList(_)
        );
        let counters = &disks[disk].counters;
        counters.went(class, &request.times, now_ns, whole, fetched);
    }
}
