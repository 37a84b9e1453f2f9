//! Capsules that wait for a request: lines by queue pair and namespace, served in turns.
//! No capsule waits behind a host or a namespace that is at its share ([`super::shares`]).

use std::collections::VecDeque;
use std::time::Instant;

use nvme_proto::wire::Sqe;

use super::tally::Tally;
use crate::ids::{QpairId, ShareId};

/// A command capsule that waits for a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capsule {
    pub(super) qpair: QpairId,
    /// Where it landed, unless its place was given back while it waits: with its data, if it
    /// had any.
    pub(super) slot: Option<u32>,
    /// The command, copied out of its slot.
    pub(super) sqe: Sqe,
    /// Bytes of in-capsule data.
    pub(super) data_bytes: u32,
    /// When it was seen.
    pub(super) seen_ns: u64,
}

impl Capsule {
    /// Whether its data was given up.
    pub(super) fn is_shed(&self) -> bool {
        self.data_bytes > 0 && self.slot.is_none()
    }

    /// Gives up its data: the receive slot, if it had one.
    pub(super) fn shed(&mut self) -> Option<u32> {
        (self.data_bytes > 0).then(|| self.slot.take()).flatten()
    }
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
    /// How many lines a queue pair has.
    of_qpair: Tally,
    /// The memory of lines that ended.
    spare: Vec<VecDeque<Capsule>>,
    waiting: usize,
}

impl Lines {
    /// Whether no request waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Whether any of a queue pair wait.
    #[inline]
    pub(super) fn has_of(&self, qpair: QpairId) -> bool {
        self.of_qpair.has(qpair.index as usize)
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

    /// That of a queue pair and a namespace.
    pub(super) fn find(&self, qpair: QpairId, nsid: u32) -> Option<&Line> {
        if !self.has_of(qpair) {
            return None;
        }
        let mut lines = self.lines.iter();
        lines.find(|line| line.qpair == qpair && line.nsid == nsid)
    }

    /// The next capsule that may go, by turns of the lines.
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

    /// Nothing could go on before this time.
    pub(super) fn pardon(&mut self, now: Instant) {
        for line in &mut self.lines {
            (line.host_since, line.disk_since) = (now, now);
        }
    }

    /// Has a capsule wait, for this host and disk.
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

    /// Whether a capsule of a queue pair waits that was seen by then.
    pub(super) fn seen_until(&self, qpair: QpairId, ns: u64) -> bool {
        let seen = |line: &Line| {
            line.qpair == qpair && line.capsules.iter().any(|capsule| capsule.seen_ns <= ns)
        };
        self.lines.iter().any(seen)
    }

    /// Ends the lines of a queue pair; gives the receive slots that their capsules hold.
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
