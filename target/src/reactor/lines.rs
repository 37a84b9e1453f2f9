//! Capsules that wait for a request: lines by queue pair and namespace, served in turns.
//! Nobody waits behind a host or a namespace that is at its share ([`super::shares`]).

use std::collections::VecDeque;

use super::Reactor;
use super::capsule::Capsule;
use super::shares::Stock;
use crate::ids::QpairId;

/// Requests that only admin queues and Connects may use, of a table of that many.
pub(super) fn reserve(requests: usize) -> usize {
    (requests / 8).clamp(1, 64)
}

/// The capsules of one queue pair for one namespace.
#[derive(Debug)]
struct Line {
    qpair: QpairId,
    /// 0 where that is no I/O.
    nsid: u32,
    capsules: VecDeque<Capsule>,
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

    fn push(&mut self, nsid: u32, capsule: Capsule) {
        let qpair = capsule.qpair;
        let of = |line: &&mut Line| line.qpair == qpair && line.nsid == nsid;
        self.waiting += 1;
        if let Some(line) = self.lines.iter_mut().find(of) {
            return line.capsules.push_back(capsule);
        }
        let mut capsules = self.spare.pop().unwrap_or_default();
        capsules.push_back(capsule);
        self.lines.push_back(Line {
            qpair,
            nsid,
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
        let port = self.qpairs[capsule.qpair].port;
        let slot = capsule.slot.expect("it has just arrived");
        self.port(port).slots().read_sqe(slot, &mut capsule.sqe);
        let nsid = self.nsid_of(&capsule);
        let held = self.hold_until.is_some() || self.lines.has(capsule.qpair, nsid);
        if !held && self.may_begin(capsule.qpair, nsid) {
            return self.admit(capsule);
        }
        let held = self.hold_until.is_some();
        self.counters.request_waits.add(u64::from(!held));
        // The SQE was copied: only data need the slot. So commands that wait keep no
        // receives from other hosts. Their number is that of the queues' entries at most.
        if capsule.data_bytes == 0 {
            capsule.slot = None;
            self.repost(port, slot);
        }
        self.lines.push(nsid, capsule);
    }

    /// Lets capsules go on, one of each line in turn.
    pub(super) fn serve_lines(&mut self) {
        let mut passed = 0;
        while passed < self.lines.lines.len() {
            let Some(mut line) = self.lines.lines.pop_front() else {
                return;
            };
            if !self.may_begin(line.qpair, line.nsid) {
                self.lines.lines.push_back(line);
                passed += 1;
                continue;
            }
            passed = 0;
            let capsule = line.capsules.pop_front().expect("a line has someone");
            self.lines.waiting -= 1;
            if line.capsules.is_empty() {
                self.lines.spare.push(line.capsules);
            } else {
                self.lines.lines.push_back(line);
            }
            self.admit(capsule);
        }
    }

    /// Whether a queue pair may have one more request, for this namespace.
    fn may_begin(&self, qpair: QpairId, nsid: u32) -> bool {
        let free = self.requests.free();
        let queue = &self.qpairs[qpair];
        let association = queue.association.as_ref();
        if association.is_none_or(|association| association.qid == 0) && queue.requests == 0 {
            return free > 0;
        }
        let Some(free) = free.checked_sub(self.reserve).filter(|free| *free > 0) else {
            return false;
        };
        let of_queue = |&queue: &QpairId| self.qpairs[queue].requests as usize;
        let held = match queue.share {
            Some(share) => self.shares.queues(share).iter().map(of_queue).sum(),
            None => queue.requests as usize,
        };
        let disk = association.and_then(|of| self.disks.find(of.subsystem.id, nsid));
        let users = disk.map_or(0, |disk| self.disks[disk].users() as usize);
        let total = self.requests.capacity() - self.reserve;
        Stock { total, free }.allows(held, users, 1)
    }

    /// The NSID of an I/O command, 0 of others.
    fn nsid_of(&self, capsule: &Capsule) -> u32 {
        let association = self.qpairs[capsule.qpair].association.as_ref();
        let is_io = association.is_some_and(|association| association.qid != 0);
        if is_io { capsule.sqe.nsid.get() } else { 0 }
    }
}
