//! Capsules that wait for a free request, served round robin by queue pair and namespace.

use std::time::Instant;

use crate::fair_queue::{FairQueue, Key};
use crate::ids::{QpairId, ShareId};
use crate::qpair::Capsule;

#[derive(Debug, Clone, Copy)]
pub(in crate::reactor) struct CapsuleKey {
    pub(in crate::reactor) qpair: QpairId,
    /// 0 for commands that are not I/O.
    pub(in crate::reactor) nsid: u32,
    share: Option<ShareId>,
    disk: Option<u32>,
    /// Time since which this host waits without interruption.
    pub(in crate::reactor) host_since: Instant,
    pub(in crate::reactor) disk_since: Instant,
}

impl PartialEq for CapsuleKey {
    fn eq(&self, other: &Self) -> bool {
        (self.qpair, self.nsid) == (other.qpair, other.nsid)
    }
}

impl Key for CapsuleKey {
    fn owner(&self) -> Option<usize> {
        Some(self.qpair.index as usize)
    }
}

pub(in crate::reactor) type CapsuleQueues = FairQueue<CapsuleKey, Capsule>;

impl CapsuleQueues {
    pub(in crate::reactor) fn has_of(&self, qpair: QpairId) -> bool {
        self.has_owner(qpair.index as usize)
    }

    pub(in crate::reactor) fn find(&self, qpair: QpairId, nsid: u32) -> Option<&CapsuleKey> {
        if !self.has_of(qpair) {
            return None;
        }
        let mut keys = self.keys().map(|(key, _)| key);
        keys.find(|key| key.qpair == qpair && key.nsid == nsid)
    }

    pub(in crate::reactor) fn wait(
        &mut self,
        nsid: u32,
        capsule: Capsule,
        (share, disk): (Option<ShareId>, Option<u32>),
        now: Instant,
    ) {
        let mut key = CapsuleKey {
            qpair: capsule.qpair,
            nsid,
            share,
            disk,
            host_since: now,
            disk_since: now,
        };
        for (other, _) in self.keys() {
            if share.is_some() && other.share == share {
                key.host_since = other.host_since;
            }
            if disk.is_some() && other.disk == disk {
                key.disk_since = other.disk_since;
            }
        }
        self.push(key, capsule);
    }

    pub(in crate::reactor) fn with_receives(&self) -> impl Iterator<Item = &CapsuleKey> {
        let keeps = |capsule: &Capsule| capsule.slots().next().is_some();
        let keys = self.keys();
        keys.filter_map(move |(key, capsules)| capsules.iter().any(keeps).then_some(key))
    }

    pub(in crate::reactor) fn drop_data(&mut self, of: &CapsuleKey) -> Vec<u32> {
        let keys = self.keys_mut().filter(|(key, _)| *key == of);
        let capsules = keys.flat_map(|(_, capsules)| capsules);
        capsules.flat_map(Capsule::drop_data).collect()
    }

    pub(in crate::reactor) fn pardon(&mut self, now: Instant) {
        for (key, _) in self.keys_mut() {
            (key.host_since, key.disk_since) = (now, now);
        }
    }

    pub(in crate::reactor) fn seen_until(&self, qpair: QpairId, ns: u64) -> bool {
        let mut of_qpair = self.keys().filter(|(key, _)| key.qpair == qpair);
        of_qpair.any(|(_, capsules)| capsules.iter().any(|capsule| capsule.seen_ns <= ns))
    }

    pub(in crate::reactor) fn drop_of(&mut self, qpair: QpairId) -> Vec<u32> {
        let mut slots = Vec::new();
        self.take_out(
            |capsule| capsule.qpair == qpair,
            |capsule| slots.extend(capsule.slots()),
        );
        slots
    }
}
