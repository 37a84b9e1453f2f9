//! Capsules that wait for a request: lines by queue pair and namespace, served in turns.
//! Nobody waits behind a host or a namespace that is at its share ([`super::shares`]).

use std::collections::VecDeque;
use std::time::Instant;

use super::Reactor;
use super::capsule::Capsule;
use super::disks::Disk;
use super::shares::Stock;
use crate::ids::{QpairId, ShareId};

/// Requests that only admin queues and Connects may use, of a table of that many.
pub(super) fn reserve(requests: usize) -> usize {
    (requests / 8).clamp(1, 64)
}

/// The capsules of one queue pair for one namespace.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) qpair: QpairId,
    /// 0 where that is no I/O.
    pub(super) nsid: u32,
    /// Its host's place among the shares, and its namespace's among the disks.
    share: Option<ShareId>,
    disk: Option<u32>,
    /// Since when commands of its host, and for its namespace, have waited all the time.
    pub(super) host_since: Instant,
    pub(super) disk_since: Instant,
    capsules: VecDeque<Capsule>,
}

impl Line {
    /// Whether data of its capsules keep receive slots.
    pub(super) fn keeps_receives(&self) -> bool {
        self.capsules.iter().any(|capsule| capsule.slot.is_some())
    }
}

/// All that wait.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: VecDeque<Line>,
    /// The memory of lines that ended.
    spare: Vec<VecDeque<Capsule>>,
    waiting: usize,
}

impl Lines {
    /// Whether nobody waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many lines there are.
    pub(super) fn count(&self) -> usize {
        self.lines.len()
    }

    /// One of them.
    pub(super) fn line(&self, index: usize) -> &Line {
        &self.lines[index]
    }

    /// The capsules of one of them.
    pub(super) fn capsules_mut(&mut self, index: usize) -> impl Iterator<Item = &mut Capsule> {
        self.lines[index].capsules.iter_mut()
    }

    /// Whether any keeps receive slots.
    pub(super) fn keep_receives(&self) -> bool {
        self.lines.iter().any(Line::keeps_receives)
    }

    /// Takes capsules out, in one pass.
    pub(super) fn take_out(&mut self, mut goes: impl FnMut(&Capsule) -> bool) -> Vec<Capsule> {
        let mut taken = Vec::new();
        for line in &mut self.lines {
            line.capsules.retain(|capsule| {
                let goes = goes(capsule);
                if goes {
                    taken.push(*capsule);
                }
                !goes
            });
        }
        self.waiting -= taken.len();
        let spare = &mut self.spare;
        self.lines.retain_mut(|line| {
            let ended = line.capsules.is_empty();
            if ended {
                spare.push(std::mem::take(&mut line.capsules));
            }
            !ended
        });
        taken
    }

    /// Nothing could go on before this time.
    pub(super) fn pardon(&mut self, now: Instant) {
        for line in &mut self.lines {
            (line.host_since, line.disk_since) = (now, now);
        }
    }

    /// Has a capsule wait, for this host and disk.
    fn push(
        &mut self,
        nsid: u32,
        capsule: Capsule,
        (share, disk): (Option<ShareId>, Option<u32>),
        now: Instant,
    ) {
        let qpair = capsule.qpair;
        let of = |line: &&mut Line| line.qpair == qpair && line.nsid == nsid;
        self.waiting += 1;
        if let Some(line) = self.lines.iter_mut().find(of) {
            return line.capsules.push_back(capsule);
        }
        let mut lines = self.lines.iter();
        let of_host = lines.find(|line| share.is_some() && line.share == share);
        let host_since = of_host.map_or(now, |line| line.host_since);
        let mut lines = self.lines.iter();
        let of_disk = lines.find(|line| disk.is_some() && line.disk == disk);
        let disk_since = of_disk.map_or(now, |line| line.disk_since);
        let mut capsules = self.spare.pop().unwrap_or_default();
        capsules.push_back(capsule);
        self.lines.push_back(Line {
            qpair,
            nsid,
            share,
            disk,
            host_since,
            disk_since,
            capsules,
        });
    }

    fn has(&self, qpair: QpairId, nsid: u32) -> bool {
        let mut lines = self.lines.iter();
        lines.any(|line| line.qpair == qpair && line.nsid == nsid)
    }

    /// The namespaces that capsules of a queue pair which were seen by then are about.
    pub(super) fn seen_until(&self, qpair: QpairId, ns: u64) -> impl Iterator<Item = u32> {
        let seen = move |line: &&Line| {
            line.qpair == qpair && line.capsules.iter().any(|capsule| capsule.seen_ns <= ns)
        };
        self.lines.iter().filter(seen).map(|line| line.nsid)
    }

    /// Ends the lines of a queue pair; gives the receive slots that their capsules hold.
    pub(super) fn drop_of(&mut self, qpair: QpairId) -> Vec<u32> {
        let mut slots = Vec::new();
        let waiting = &mut self.waiting;
        self.lines.retain(|line| {
            let goes = line.qpair == qpair;
            if goes {
                *waiting -= line.capsules.len();
                slots.extend(line.capsules.iter().filter_map(|capsule| capsule.slot));
            }
            !goes
        });
        slots
    }
}

impl Reactor {
    /// Begins with a capsule if its host and its namespace may have one more request, or
    /// has it wait.
    pub(super) fn admit_or_wait(&mut self, mut capsule: Capsule) {
        let port = self.queues.qpairs[capsule.qpair].port;
        let slot = capsule.slot.expect("it has just arrived");
        self.port(port).slots().read_sqe(slot, &mut capsule.sqe);
        let nsid = self.nsid_of(&capsule);
        let held = self.queues.hold_until.is_some() || self.queues.lines.has(capsule.qpair, nsid);
        if !held && self.may_begin(capsule.qpair, nsid) {
            return self.admit(capsule);
        }
        let held = self.queues.hold_until.is_some();
        self.queues.counters.request_waits.add(u64::from(!held));
        // The SQE was copied: only data need the slot. So commands that wait keep no
        // receives from other hosts. Their number is that of the queues' entries at most.
        let stuck = self.receives_are_short(port) && self.stuck_line(capsule.qpair, nsid);
        if capsule.data_bytes == 0 || stuck {
            capsule.slot = None;
            self.repost(port, slot);
        }
        let queue = &self.queues.qpairs[capsule.qpair];
        let association = queue.association.as_ref();
        let disk = association.and_then(|of| self.io.disks.find(of.subsystem.id, nsid));
        let of = (queue.share, disk);
        self.queues.lines.push(nsid, capsule, of, self.time.now);
    }

    fn stuck_line(&self, qpair: QpairId, nsid: u32) -> bool {
        let mut lines = self.queues.lines.lines.iter();
        let line = lines.find(|line| line.qpair == qpair && line.nsid == nsid);
        line.is_some_and(|line| self.is_stuck(line))
    }

    /// Lets capsules go on, one of each line in turn.
    pub(super) fn serve_lines(&mut self) {
        let mut passed = 0;
        while passed < self.queues.lines.lines.len() {
            let Some(mut line) = self.queues.lines.lines.pop_front() else {
                return;
            };
            if !self.may_begin(line.qpair, line.nsid) {
                self.queues.lines.lines.push_back(line);
                passed += 1;
                continue;
            }
            passed = 0;
            let capsule = line.capsules.pop_front().expect("a line has someone");
            self.queues.lines.waiting -= 1;
            if line.capsules.is_empty() {
                self.queues.lines.spare.push(line.capsules);
            } else {
                self.queues.lines.lines.push_back(line);
            }
            self.admit(capsule);
        }
    }

    /// Whether a queue pair may have one more request, for this namespace.
    fn may_begin(&self, qpair: QpairId, nsid: u32) -> bool {
        let queue = &self.queues.qpairs[qpair];
        let association = queue.association.as_ref();
        if association.is_none_or(|association| association.qid == 0) && queue.requests == 0 {
            return self.queues.requests.free() > 0;
        }
        let Some(stock) = self.stock() else {
            return false;
        };
        let users = self.disk_of(qpair, nsid).map_or(0, Disk::users);
        stock.allows(self.held_by_host(qpair), users as usize, 1)
    }

    /// The same for each of the two that can be at their share: (host, namespace).
    pub(super) fn may_take(&self, qpair: QpairId, nsid: u32) -> (bool, bool) {
        let Some(stock) = self.stock() else {
            return (false, false);
        };
        let users = self.disk_of(qpair, nsid).map_or(0, Disk::users);
        (
            stock.allows(self.held_by_host(qpair), 0, 1),
            stock.allows(0, users as usize, 1),
        )
    }

    /// Requests for I/O, if any are left.
    fn stock(&self) -> Option<Stock> {
        let free = self
            .queues
            .requests
            .free()
            .checked_sub(self.queues.reserve)?;
        let total = self.queues.requests.capacity() - self.queues.reserve;
        (free > 0).then_some(Stock { total, free })
    }

    /// Requests that the host of a queue pair has.
    pub(super) fn held_by_host(&self, qpair: QpairId) -> usize {
        let of_queue = |&queue: &QpairId| self.queues.qpairs[queue].requests as usize;
        match self.queues.qpairs[qpair].share {
            Some(share) => self.io.shares.queues(share).iter().map(of_queue).sum(),
            None => of_queue(&qpair),
        }
    }

    /// When a command that had waited last began: of a queue pair's host, and for a namespace.
    pub(super) fn last_begun(
        &self,
        qpair: QpairId,
        nsid: u32,
    ) -> (Option<Instant>, Option<Instant>) {
        let share = self.queues.qpairs[qpair].share;
        let host = share.and_then(|share| self.io.shares.last_begun(share));
        let disk = self.disk_of(qpair, nsid);
        (host, disk.and_then(|disk| disk.last_begun))
    }

    /// A command begins while others wait.
    pub(super) fn note_begun(&mut self, qpair: QpairId, nsid: u32) {
        let queue = &self.queues.qpairs[qpair];
        if let Some(share) = queue.share {
            self.io.shares.note_begun(share, self.time.now);
        }
        let association = queue.association.as_ref();
        if let Some(disk) = association.and_then(|of| self.io.disks.find(of.subsystem.id, nsid)) {
            self.io.disks[disk].last_begun = Some(self.time.now);
        }
    }

    fn disk_of(&self, qpair: QpairId, nsid: u32) -> Option<&Disk> {
        let association = self.queues.qpairs[qpair].association.as_ref()?;
        let disk = self.io.disks.find(association.subsystem.id, nsid)?;
        Some(&self.io.disks[disk])
    }

    /// The NSID of an I/O command, 0 of others.
    pub(super) fn nsid_of(&self, capsule: &Capsule) -> u32 {
        let association = self.queues.qpairs[capsule.qpair].association.as_ref();
        let is_io = association.is_some_and(|association| association.qid != 0);
        if is_io { capsule.sqe.nsid.get() } else { 0 }
    }
}
