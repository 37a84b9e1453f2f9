//! Commands that wait for rate limits, in one queue per host and disk, served by
//! [`throttle`](crate::reactor::stages::throttle). The queue with the least use, divided by its
//! host's weight, is served first.

use super::index_counts::IndexCounts;
use crate::ids::ShareId;
use crate::limits::SLICE_NS;
use crate::request::{List, Request, RequestId, RequestTable, Stage};

/// Part of all requests: once 1/16 wait for limits, further capsules wait without a request.
const CROWD: usize = 16;

/// Maximum nanoseconds by which the use of a queue that was empty may be below the least use of the
/// waiting queues: idle time gives little advantage.
const LAG_MAX_NS: u64 = 16 * SLICE_NS;

#[derive(Debug)]
pub(in crate::reactor) struct LimitedQueue {
    share: Option<ShareId>,
    disk: u32,
    waiting: List,
    count: usize,
    /// Nanoseconds charged by the most widely shared limit, divided by the host's weight.
    taken_ns: u64,
}

impl LimitedQueue {
    pub(in crate::reactor) fn front(&self) -> Option<RequestId> {
        self.waiting.front()
    }

    pub(in crate::reactor) fn end_of_turn(&self) -> u64 {
        self.taken_ns + SLICE_NS
    }

    pub(in crate::reactor) fn taken_ns(&self) -> u64 {
        self.taken_ns
    }
}

#[derive(Debug)]
pub(in crate::reactor) struct Limited {
    queues: Vec<LimitedQueue>,
    of_share: IndexCounts,
    pub(in crate::reactor) next_ns: u64,
    count: usize,
    crowd: usize,
}

impl Limited {
    pub(in crate::reactor) fn new(requests: u32) -> Self {
        Self {
            queues: Vec::with_capacity(64),
            of_share: IndexCounts::default(),
            next_ns: u64::MAX,
            count: 0,
            crowd: (requests as usize / CROWD).max(1),
        }
    }

    pub(in crate::reactor) fn look_at(&mut self, ns: u64) {
        self.next_ns = self.next_ns.min(ns);
    }

    pub(in crate::reactor) fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline(always)]
    pub(in crate::reactor) fn is_crowd(&self) -> bool {
        self.count >= self.crowd
    }

    pub(in crate::reactor) fn waits(&self, share: ShareId) -> bool {
        self.of_share.has(share)
    }

    pub(in crate::reactor) fn has_queued(&self, share: Option<ShareId>, disk: u32) -> bool {
        if share.is_some_and(|share| !self.waits(share)) {
            return false;
        }
        let mut queues = self.queues.iter();
        queues.any(|queue| queue.share == share && queue.disk == disk && queue.count > 0)
    }

    fn least(&self) -> Option<u64> {
        let waiting = self.queues.iter().filter(|queue| queue.count > 0);
        waiting.map(LimitedQueue::taken_ns).min()
    }

    pub(in crate::reactor) fn wait(
        &mut self,
        requests: &mut RequestTable,
        id: RequestId,
        (share, disk): (Option<ShareId>, u32),
    ) {
        let of = |queue: &LimitedQueue| queue.share == share && queue.disk == disk;
        let known = self.queues.iter().position(of);
        let is_new = known.is_none_or(|at| self.queues[at].count == 0);
        let least = is_new.then(|| self.least()).flatten();
        let at = known.unwrap_or_else(|| {
            self.queues.push(LimitedQueue {
                share,
                disk,
                waiting: List::default(),
                count: 0,
                taken_ns: least.unwrap_or(0),
            });
            self.queues.len() - 1
        });
        let queue = &mut self.queues[at];
        if let Some(least) = least {
            queue.taken_ns = queue.taken_ns.max(least.saturating_sub(LAG_MAX_NS));
        }
        requests.push_back(&mut queue.waiting, id, Stage::AwaitingLimit);
        queue.count += 1;
        self.count += 1;
        if let Some(share) = share {
            self.of_share.add(share);
        }
    }

    pub(in crate::reactor) fn sorted(&mut self) -> &[LimitedQueue] {
        self.queues.sort_unstable_by_key(LimitedQueue::taken_ns);
        &self.queues
    }

    pub(in crate::reactor) fn len(&self) -> usize {
        self.queues.len()
    }

    pub(in crate::reactor) fn queue(&self, at: usize) -> &LimitedQueue {
        &self.queues[at]
    }

    pub(in crate::reactor) fn pop(&mut self, requests: &mut RequestTable, at: usize, cost_ns: u64) {
        let queue = &mut self.queues[at];
        requests.pop_front(&mut queue.waiting);
        queue.taken_ns = queue.taken_ns.saturating_add(cost_ns);
        queue.count -= 1;
        self.count -= 1;
        if let Some(share) = queue.share {
            self.of_share.take(share);
        }
    }

    pub(in crate::reactor) fn tidy(&mut self) {
        let Some(least) = self.least() else {
            return self.queues.clear();
        };
        let counts = |queue: &LimitedQueue| queue.taken_ns.saturating_add(LAG_MAX_NS) > least;
        self.queues.retain(|queue| queue.count > 0 || counts(queue));
    }

    pub(in crate::reactor) fn take_out(
        &mut self,
        requests: &mut RequestTable,
        goes: impl Fn(&Request) -> bool,
        mut each: impl FnMut(RequestId),
    ) {
        for queue in &mut self.queues {
            let (own, all) = (&mut queue.count, &mut self.count);
            let (share, of_share) = (queue.share, &mut self.of_share);
            requests.take_out(&mut queue.waiting, &goes, |id| {
                *own -= 1;
                *all -= 1;
                if let Some(share) = share {
                    of_share.take(share);
                }
                each(id);
            });
        }
        self.tidy();
    }
}
