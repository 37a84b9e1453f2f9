//! Limit on a disk's commands in progress. Further commands wait in one queue per host; the cost of
//! a command is its bytes.

use super::serial_queues::SerialQueues;
use crate::depth::Depth;
use crate::fair_queue::{FairQueue, Key};
use crate::ids::ShareId;
use crate::request::{Request, RequestId, RequestTable, Stage};

/// Minimum bytes charged for a command, because smaller commands occupy a disk equally long.
const BYTES_MIN: u64 = 4096;

/// Cost units per byte, so that a small command's cost can be divided by a large weight.
const PARTS: u64 = 64;

#[derive(Debug, Clone, Copy)]
pub(in crate::reactor) struct HostShare {
    pub(in crate::reactor) share: Option<ShareId>,
    pub(in crate::reactor) weight: u32,
}

impl PartialEq for HostShare {
    fn eq(&self, other: &Self) -> bool {
        self.share == other.share
    }
}

impl Key for HostShare {}

#[derive(Debug)]
pub(in crate::reactor) struct DepthQueues {
    pub(in crate::reactor) serial: SerialQueues,
    reactor: usize,
    in_progress: u32,
    waiting: FairQueue<HostShare, RequestId>,
}

impl DepthQueues {
    pub(in crate::reactor) fn new(reactor: usize, depth: &Depth) -> Self {
        // A panicked reactor may have left counts behind.
        depth.tell(reactor, 0, 0);
        Self {
            serial: SerialQueues::default(),
            reactor,
            in_progress: 0,
            waiting: FairQueue::default(),
        }
    }

    pub(in crate::reactor) fn must_wait(
        &mut self,
        depth: &Depth,
        id: RequestId,
        host: HostShare,
        requests: &mut RequestTable,
    ) -> bool {
        let waits = !self.waiting.is_empty() || !depth.allows(self.reactor, host.weight);
        if waits {
            self.waiting
                .push_request(requests, host, id, Stage::AwaitingTurn);
            self.tell(depth);
        } else {
            self.start(depth, &mut requests[id]);
        }
        waits
    }

    pub(in crate::reactor) fn next(
        &mut self,
        depth: &Depth,
        requests: &mut RequestTable,
    ) -> Option<RequestId> {
        let (&HostShare { weight, .. }, &id) = self.waiting.first()?;
        if !depth.allows(self.reactor, weight) {
            return None;
        }
        let cost = requests[id].disk_bytes.max(BYTES_MIN) * PARTS;
        self.waiting.pop_request(requests, (cost, weight));
        self.start(depth, &mut requests[id]);
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
        if !self.waiting.is_empty() {
            self.waiting.take_out_requests(requests, &goes, each);
            self.tell(depth);
        }
    }

    fn start(&mut self, depth: &Depth, request: &mut Request) {
        request.restrictions = request.restrictions.counted();
        self.in_progress += 1;
        self.tell(depth);
    }

    fn tell(&self, depth: &Depth) {
        let wanting = self.waiting.keys().map(|(host, _)| host.weight).sum();
        depth.tell(self.reactor, self.in_progress, wanting);
    }
}
