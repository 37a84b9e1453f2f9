//! Capsules that wait for a request, in one queue per queue pair and namespace, served in turn.

use std::collections::VecDeque;
use std::time::Instant;

use nvme_proto::wire::Sqe;

use super::index_counts::IndexCounts;
use crate::ids::{QpairId, ShareId};

#[derive(Debug, Clone, Copy)]
pub(in crate::reactor) struct Capsule {
    pub(in crate::reactor) qpair: QpairId,
    /// `None` once the in-capsule data is discarded.
    pub(in crate::reactor) slot: Option<u32>,
    pub(in crate::reactor) sqe: Sqe,
    pub(in crate::reactor) data_bytes: u32,
    pub(in crate::reactor) seen_ns: u64,
}

impl Capsule {
    pub(in crate::reactor) fn is_data_dropped(&self) -> bool {
        self.data_bytes > 0 && self.slot.is_none()
    }

    pub(in crate::reactor) fn drop_data(&mut self) -> Option<u32> {
        (self.data_bytes > 0).then(|| self.slot.take()).flatten()
    }
}

#[derive(Debug)]
pub(in crate::reactor) struct CapsuleQueue {
    pub(in crate::reactor) qpair: QpairId,
    /// 0 for commands that are not I/O.
    pub(in crate::reactor) nsid: u32,
    share: Option<ShareId>,
    disk: Option<u32>,
    /// Start of this host's uninterrupted waiting.
    pub(in crate::reactor) host_since: Instant,
    pub(in crate::reactor) disk_since: Instant,
    capsules: VecDeque<Capsule>,
}

impl CapsuleQueue {
    pub(in crate::reactor) fn keeps_receives(&self) -> bool {
        self.capsules.iter().any(|capsule| capsule.slot.is_some())
    }
}

#[derive(Debug, Default)]
pub(in crate::reactor) struct CapsuleQueues {
    queues: VecDeque<CapsuleQueue>,
    of_qpair: IndexCounts,
    spare: Vec<VecDeque<Capsule>>,
    waiting: usize,
}

impl CapsuleQueues {
    #[inline]
    pub(in crate::reactor) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    #[inline]
    pub(in crate::reactor) fn has_of(&self, qpair: QpairId) -> bool {
        self.of_qpair.has(qpair.index as usize)
    }

    pub(in crate::reactor) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(in crate::reactor) fn count(&self) -> usize {
        self.queues.len()
    }

    pub(in crate::reactor) fn queue(&self, index: usize) -> &CapsuleQueue {
        &self.queues[index]
    }

    pub(in crate::reactor) fn find(&self, qpair: QpairId, nsid: u32) -> Option<&CapsuleQueue> {
        if !self.has_of(qpair) {
            return None;
        }
        let mut queues = self.queues.iter();
        queues.find(|queue| queue.qpair == qpair && queue.nsid == nsid)
    }

    pub(in crate::reactor) fn next(
        &mut self,
        may_go: impl Fn(QpairId, u32) -> bool,
    ) -> Option<Capsule> {
        for _ in 0..self.queues.len() {
            let mut queue = self.queues.pop_front()?;
            if !may_go(queue.qpair, queue.nsid) {
                self.queues.push_back(queue);
                continue;
            }
            let capsule = queue.capsules.pop_front().expect("a queue is not empty");
            self.waiting -= 1;
            if queue.capsules.is_empty() {
                self.of_qpair.take(queue.qpair.index as usize);
                self.spare.push(queue.capsules);
            } else {
                self.queues.push_back(queue);
            }
            return Some(capsule);
        }
        None
    }

    pub(in crate::reactor) fn capsules_mut(
        &mut self,
        index: usize,
    ) -> impl Iterator<Item = &mut Capsule> {
        self.queues[index].capsules.iter_mut()
    }

    pub(in crate::reactor) fn keep_receives(&self) -> bool {
        self.queues.iter().any(CapsuleQueue::keeps_receives)
    }

    pub(in crate::reactor) fn take_out(
        &mut self,
        mut goes: impl FnMut(&Capsule) -> bool,
    ) -> Vec<Capsule> {
        let mut taken = Vec::new();
        for queue in &mut self.queues {
            queue.capsules.retain(|capsule| {
                let goes = goes(capsule);
                if goes {
                    taken.push(*capsule);
                }
                !goes
            });
        }
        self.waiting -= taken.len();
        let (spare, of_qpair) = (&mut self.spare, &mut self.of_qpair);
        self.queues.retain_mut(|queue| {
            let ended = queue.capsules.is_empty();
            if ended {
                of_qpair.take(queue.qpair.index as usize);
                spare.push(std::mem::take(&mut queue.capsules));
            }
            !ended
        });
        taken
    }

    pub(in crate::reactor) fn pardon(&mut self, now: Instant) {
        for queue in &mut self.queues {
            (queue.host_since, queue.disk_since) = (now, now);
        }
    }

    pub(in crate::reactor) fn push(
        &mut self,
        nsid: u32,
        capsule: Capsule,
        (share, disk): (Option<ShareId>, Option<u32>),
        now: Instant,
    ) {
        let qpair = capsule.qpair;
        let of = |queue: &&mut CapsuleQueue| queue.qpair == qpair && queue.nsid == nsid;
        self.waiting += 1;
        if let Some(queue) = self.queues.iter_mut().find(of) {
            return queue.capsules.push_back(capsule);
        }
        let mut queues = self.queues.iter();
        let of_host = queues.find(|queue| share.is_some() && queue.share == share);
        let host_since = of_host.map_or(now, |queue| queue.host_since);
        let mut queues = self.queues.iter();
        let of_disk = queues.find(|queue| disk.is_some() && queue.disk == disk);
        let disk_since = of_disk.map_or(now, |queue| queue.disk_since);
        self.of_qpair.add(qpair.index as usize);
        let mut capsules = self.spare.pop().unwrap_or_default();
        capsules.push_back(capsule);
        self.queues.push_back(CapsuleQueue {
            qpair,
            nsid,
            share,
            disk,
            host_since,
            disk_since,
            capsules,
        });
    }

    pub(in crate::reactor) fn seen_until(&self, qpair: QpairId, ns: u64) -> bool {
        let seen = |queue: &CapsuleQueue| {
            queue.qpair == qpair && queue.capsules.iter().any(|capsule| capsule.seen_ns <= ns)
        };
        self.queues.iter().any(seen)
    }

    pub(in crate::reactor) fn drop_of(&mut self, qpair: QpairId) -> Vec<u32> {
        let mut slots = Vec::new();
        let (waiting, of_qpair) = (&mut self.waiting, &mut self.of_qpair);
        self.queues.retain(|queue| {
            let goes = queue.qpair == qpair;
            if goes {
                of_qpair.take(qpair.index as usize);
                *waiting -= queue.capsules.len();
                slots.extend(queue.capsules.iter().filter_map(|capsule| capsule.slot));
            }
            !goes
        });
        slots
    }
}
