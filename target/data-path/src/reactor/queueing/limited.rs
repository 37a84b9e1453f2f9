//! Commands that wait for rate limits, in one queue per host and disk. If several limits apply, the
//! limit shared by the most hosts determines a command's cost in time.

use crate::fair_queue::{FairQueue, Key};
use crate::ids::ShareId;
use crate::limits::SLICE_NS;
use crate::request::RequestId;

/// Once 1/`CROWD` of all requests wait for limits, further capsules of their hosts wait without a
/// request.
const CROWD: usize = 16;

/// Maximum nanoseconds by which an idle key's `used` ([`FairQueue`]) lags behind that of waiting
/// keys. Limits the advantage of idle time.
const LAG_MAX_NS: u64 = 16 * SLICE_NS;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reactor) struct HostDisk {
    pub(in crate::reactor) share: Option<ShareId>,
    pub(in crate::reactor) disk: Option<u32>,
}

impl Key for HostDisk {
    fn owner(&self) -> Option<usize> {
        self.share
    }

    fn competes(&self, other: &Self) -> bool {
        self.disk == other.disk
    }
}

#[derive(Debug)]
pub(in crate::reactor) struct Limited {
    pub(in crate::reactor) waiting: FairQueue<HostDisk, RequestId>,
    pub(in crate::reactor) next_ns: u64,
    crowd: usize,
}

impl Limited {
    pub(in crate::reactor) fn new(requests: u32) -> Self {
        Self {
            waiting: FairQueue::with_claims(LAG_MAX_NS),
            next_ns: u64::MAX,
            crowd: (requests as usize / CROWD).max(1),
        }
    }

    pub(in crate::reactor) fn look_at(&mut self, ns: u64) {
        self.next_ns = self.next_ns.min(ns);
    }

    #[inline(always)]
    pub(in crate::reactor) fn is_crowd(&self) -> bool {
        self.waiting.len() >= self.crowd
    }

    pub(in crate::reactor) fn has_queued(&self, key: &HostDisk) -> bool {
        key.share.is_none_or(|share| self.waiting.has_owner(share)) && self.waiting.has(key)
    }
}
