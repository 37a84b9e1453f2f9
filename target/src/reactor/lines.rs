//! Capsules that wait for a request, in one queue per queue pair and namespace. The queues take turns.

use std::collections::VecDeque;
use std::time::Instant;

use nvme_proto::wire::Sqe;

use super::tally::Tally;
use crate::ids::{QpairId, ShareId};

#[derive(Debug, Clone, Copy)]
pub(super) struct Capsule {
    pub(super) qpair: QpairId,
    /// Receive slot with the in-capsule data; `None` once that data is discarded.
    pub(super) slot: Option<u32>,
    pub(super) sqe: Sqe,
    /// Length of the in-capsule data, in bytes.
    pub(super) data_bytes: u32,
    pub(super) seen_ns: u64,
}

impl Capsule {
    pub(super) fn is_shed(&self) -> bool {
        self.data_bytes > 0 && self.slot.is_none()
    }

    /// Discards the in-capsule data and returns its receive slot.
    pub(super) fn shed(&mut self) -> Option<u32> {
        (self.data_bytes > 0).then(|| self.slot.take()).flatten()
    }
}

#[derive(Debug)]
pub(super) struct Line {
    pub(super) qpair: QpairId,
    /// NSID, or 0 for commands that are not I/O.
    pub(super) nsid: u32,
    share: Option<ShareId>,
    disk: Option<u32>,
    /// Start of the period in which capsules of this host have waited without interruption.
    pub(super) host_since: Instant,
    pub(super) disk_since: Instant,
    capsules: VecDeque<Capsule>,
}

impl Line {
    pub(super) fn keeps_receives(&self) -> bool {
        self.capsules.iter().any(|capsule| capsule.slot.is_some())
    }
}

#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: VecDeque<Line>,
    of_qpair: Tally,
    spare: Vec<VecDeque<Capsule>>,
    waiting: usize,
}

impl Lines {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    #[inline]
    pub(super) fn has_of(&self, qpair: QpairId) -> bool {
        self.of_qpair.has(qpair.index as usize)
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(super) fn count(&self) -> usize {
        self.lines.len()
    }

    pub(super) fn line(&self, index: usize) -> &Line {
        &self.lines[index]
    }

    pub(super) fn find(&self, qpair: QpairId, nsid: u32) -> Option<&Line> {
        if !self.has_of(qpair) {
            return None;
        }
        let mut lines = self.lines.iter();
        lines.find(|line| line.qpair == qpair && line.nsid == nsid)
    }

    pub(super) fn next(&mut self, may_go: impl Fn(QpairId, u32) -> bool) -> Option<Capsule> {
        for _ in 0..self.lines.len() {
            let mut line = self.lines.pop_front()?;
            if !may_go(line.qpair, line.nsid) {
                self.lines.push_back(line);
                continue;
            }
            let capsule = line.capsules.pop_front().expect("a line is not empty");
            self.waiting -= 1;
            if line.capsules.is_empty() {
                self.of_qpair.take(line.qpair.index as usize);
                self.spare.push(line.capsules);
            } else {
                self.lines.push_back(line);
            }
            return Some(capsule);
        }
        None
    }

    pub(super) fn capsules_mut(&mut self, index: usize) -> impl Iterator<Item = &mut Capsule> {
        self.lines[index].capsules.iter_mut()
    }

    pub(super) fn keep_receives(&self) -> bool {
        self.lines.iter().any(Line::keeps_receives)
    }

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
        let (spare, of_qpair) = (&mut self.spare, &mut self.of_qpair);
        self.lines.retain_mut(|line| {
            let ended = line.capsules.is_empty();
            if ended {
                of_qpair.take(line.qpair.index as usize);
                spare.push(std::mem::take(&mut line.capsules));
            }
            !ended
        });
        taken
    }

    pub(super) fn pardon(&mut self, now: Instant) {
        for line in &mut self.lines {
            (line.host_since, line.disk_since) = (now, now);
        }
    }

    pub(super) fn push(
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
        self.of_qpair.add(qpair.index as usize);
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

    /// Returns true if a capsule that arrived on the queue pair by `ns` waits.
    pub(super) fn seen_until(&self, qpair: QpairId, ns: u64) -> bool {
        let seen = |line: &Line| {
            line.qpair == qpair && line.capsules.iter().any(|capsule| capsule.seen_ns <= ns)
        };
        self.lines.iter().any(seen)
    }

    /// Drops the capsules of a queue pair and returns their receive slots.
    pub(super) fn drop_of(&mut self, qpair: QpairId) -> Vec<u32> {
        let mut slots = Vec::new();
        let (waiting, of_qpair) = (&mut self.waiting, &mut self.of_qpair);
        self.lines.retain(|line| {
            let goes = line.qpair == qpair;
            if goes {
                of_qpair.take(qpair.index as usize);
                *waiting -= line.capsules.len();
                slots.extend(line.capsules.iter().filter_map(|capsule| capsule.slot));
            }
            !goes
        });
        slots
    }
}
