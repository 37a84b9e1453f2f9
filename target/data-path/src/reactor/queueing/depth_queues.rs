//! Limit on a disk's commands in progress. Further commands wait in one queue per host.
//!
//! The queue with the least use in bytes, divided by its host's weight, is served first.

use super::serial_queues::SerialQueues;
use crate::depth::Depth;
use crate::ids::ShareId;
use crate::request::{List, Request, RequestId, RequestTable, Stage};

/// Minimum bytes charged per command: smaller commands occupy a disk as long.
const BYTES_MIN: u64 = 4096;

/// Units per byte, for precision when a small command is divided by a large weight.
const PARTS: u64 = 64;

#[derive(Debug, Clone, Copy)]
pub(in crate::reactor) struct HostShare {
    pub(in crate::reactor) share: Option<ShareId>,
    pub(in crate::reactor) weight: u32,
}

#[derive(Debug)]
struct HostQueue {
    host: HostShare,
    waiting: List,
    count: u32,
    /// Use in units of 1/[`PARTS`] byte, divided by the host's weight.
    taken: u64,
}

#[derive(Debug)]
pub(in crate::reactor) struct DepthQueues {
    pub(in crate::reactor) serial: SerialQueues,
    reactor: usize,
    in_progress: u32,
    wanting: u32,
    queues: Vec<HostQueue>,
    served: u64,
}

impl DepthQueues {
    pub(in crate::reactor) fn new(reactor: usize, depth: &Depth) -> Self {
        // A panicked reactor may have left its counts.
        depth.tell(reactor, 0, 0);
        Self {
            serial: SerialQueues::default(),
            reactor,
            in_progress: 0,
            wanting: 0,
            queues: Vec::new(),
            served: 0,
        }
    }

    pub(in crate::reactor) fn must_wait(
        &mut self,
        depth: &Depth,
        id: RequestId,
        host: HostShare,
        requests: &mut RequestTable,
    ) -> bool {
        let at = self.queue_of(host);
        if self.wanting == 0 && depth.allows(self.reactor, host.weight) {
            self.start(depth, &mut requests[id], at);
            return false;
        }
        let queue = &mut self.queues[at];
        if queue.count == 0 {
            self.wanting += queue.host.weight;
        }
        requests.push_back(&mut queue.waiting, id, Stage::AwaitingTurn);
        queue.count += 1;
        self.tell(depth);
        true
    }

    pub(in crate::reactor) fn next(
        &mut self,
        depth: &Depth,
        requests: &mut RequestTable,
    ) -> Option<RequestId> {
        let queues = self.queues.iter().enumerate();
        let waiting = queues.filter(|(_, queue)| queue.count > 0);
        let (at, queue) = waiting.min_by_key(|(_, queue)| queue.taken)?;
        if !depth.allows(self.reactor, queue.host.weight) {
            return None;
        }
        let queue = &mut self.queues[at];
        let id = requests.pop_front(&mut queue.waiting)?;
        queue.count -= 1;
        if queue.count == 0 {
            self.wanting -= queue.host.weight;
        }
        self.start(depth, &mut requests[id], at);
        Some(id)
    }

    pub(in crate::reactor) fn ended(&mut self, depth: &Depth, request: &mut Request) {
        request.restrictions = request.restrictions.limited();
        self.in_progress -= 1;
        self.tell(depth);
    }

    pub(in crate::reactor) fn take_out(
        &mut self,
        depth: &Depth,
        requests: &mut RequestTable,
        goes: impl Fn(&Request) -> bool,
        mut each: impl FnMut(RequestId),
    ) {
        self.serial.take_out(requests, &goes, &mut each);
        if self.wanting == 0 {
            return;
        }
        for queue in self.queues.iter_mut().filter(|queue| queue.count > 0) {
            let count = &mut queue.count;
            requests.take_out(&mut queue.waiting, &goes, |id| {
                *count -= 1;
                each(id);
            });
            if queue.count == 0 {
                self.wanting -= queue.host.weight;
            }
        }
        self.tell(depth);
    }

    /// Returns the host's queue. An idle host's use rises to that of the last queue served: idle
    /// time gives no advantage.
    fn queue_of(&mut self, host: HostShare) -> usize {
        let of = |queue: &HostQueue| queue.host.share == host.share;
        let Some(at) = self.queues.iter().position(of) else {
            // Drops empty queues whose use would rise to `served` anyway.
            let served = self.served;
            self.queues
                .retain(|queue| queue.count > 0 || queue.taken > served);
            self.queues.push(HostQueue {
                host,
                waiting: List::default(),
                count: 0,
                taken: self.served,
            });
            return self.queues.len() - 1;
        };
        let queue = &mut self.queues[at];
        if queue.count == 0 {
            queue.host = host;
            queue.taken = queue.taken.max(self.served);
        }
        at
    }

    fn start(&mut self, depth: &Depth, request: &mut Request, at: usize) {
        request.restrictions = request.restrictions.counted();
        self.in_progress += 1;
        let queue = &mut self.queues[at];
        self.served = queue.taken;
        let bytes = request.disk_bytes.max(BYTES_MIN);
        queue.taken += bytes * PARTS / u64::from(queue.host.weight);
        self.tell(depth);
    }

    fn tell(&self, depth: &Depth) {
        depth.tell(self.reactor, self.in_progress, self.wanting);
    }
}
