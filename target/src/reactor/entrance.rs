//! Limit on a disk's commands in progress. Excess commands wait in one queue per host.
//!
//! The queue with the least use in bytes, divided by its host's weight, goes first.

use super::turns::Turns;
use crate::depth::Depth;
use crate::ids::ShareId;
use crate::request::{List, Request, RequestId, RequestTable, Stage};

/// Bytes counted at least for a command, because smaller commands take a disk as long.
const BYTES_MIN: u64 = 4096;

/// Parts of a byte, so that large weights can divide small commands.
const PARTS: u64 = 64;

#[derive(Debug, Clone, Copy)]
pub(super) struct Guest {
    pub(super) share: Option<ShareId>,
    pub(super) weight: u32,
}

#[derive(Debug)]
struct Line {
    guest: Guest,
    waiting: List,
    count: u32,
    /// Bytes used, in [`PARTS`], divided by the host's weight.
    taken: u64,
}

#[derive(Debug)]
pub(super) struct Entrance {
    pub(super) turns: Turns,
    reactor: usize,
    inside: u32,
    /// Sum of the weights of the hosts with queued commands.
    wanting: u32,
    lines: Vec<Line>,
    /// `taken` of the last queue served.
    served: u64,
}

impl Entrance {
    pub(super) fn new(reactor: usize, depth: &Depth) -> Self {
        // Clears counts that a reactor that panicked may have left.
        depth.tell(reactor, 0, 0);
        Self {
            turns: Turns::default(),
            reactor,
            inside: 0,
            wanting: 0,
            lines: Vec::new(),
            served: 0,
        }
    }

    /// Starts a command or queues it; returns whether it waits.
    pub(super) fn must_wait(
        &mut self,
        depth: &Depth,
        id: RequestId,
        guest: Guest,
        requests: &mut RequestTable,
    ) -> bool {
        let at = self.line_of(guest);
        if self.wanting == 0 && depth.allows(self.reactor, guest.weight) {
            self.let_in(depth, &mut requests[id], at);
            return false;
        }
        let line = &mut self.lines[at];
        if line.count == 0 {
            self.wanting += line.guest.weight;
        }
        requests.push_back(&mut line.waiting, id, Stage::AwaitingTurn);
        line.count += 1;
        self.tell(depth);
        true
    }

    pub(super) fn next(&mut self, depth: &Depth, requests: &mut RequestTable) -> Option<RequestId> {
        let lines = self.lines.iter().enumerate();
        let waiting = lines.filter(|(_, line)| line.count > 0);
        let (at, line) = waiting.min_by_key(|(_, line)| line.taken)?;
        if !depth.allows(self.reactor, line.guest.weight) {
            return None;
        }
        let line = &mut self.lines[at];
        let id = requests.pop_front(&mut line.waiting)?;
        line.count -= 1;
        if line.count == 0 {
            self.wanting -= line.guest.weight;
        }
        self.let_in(depth, &mut requests[id], at);
        Some(id)
    }

    pub(super) fn leaves(&mut self, depth: &Depth, request: &mut Request) {
        request.restrictions = request.restrictions.limited();
        self.inside -= 1;
        self.tell(depth);
    }

    pub(super) fn take_out(
        &mut self,
        depth: &Depth,
        requests: &mut RequestTable,
        goes: impl Fn(&Request) -> bool,
        mut each: impl FnMut(RequestId),
    ) {
        self.turns.take_out(requests, &goes, &mut each);
        if self.wanting == 0 {
            return;
        }
        for line in self.lines.iter_mut().filter(|line| line.count > 0) {
            let count = &mut line.count;
            requests.take_out(&mut line.waiting, &goes, |id| {
                *count -= 1;
                each(id);
            });
            if line.count == 0 {
                self.wanting -= line.guest.weight;
            }
        }
        self.tell(depth);
    }

    /// Returns the host's queue. An idle host's use is raised to that of the last queue served, so
    /// that idle time gives no advantage.
    fn line_of(&mut self, guest: Guest) -> usize {
        let of = |line: &Line| line.guest.share == guest.share;
        let Some(at) = self.lines.iter().position(of) else {
            // Empty queues up to `served` carry no information.
            let served = self.served;
            self.lines
                .retain(|line| line.count > 0 || line.taken > served);
            self.lines.push(Line {
                guest,
                waiting: List::default(),
                count: 0,
                taken: self.served,
            });
            return self.lines.len() - 1;
        };
        let line = &mut self.lines[at];
        if line.count == 0 {
            line.guest = guest;
            line.taken = line.taken.max(self.served);
        }
        at
    }

    fn let_in(&mut self, depth: &Depth, request: &mut Request, at: usize) {
        request.restrictions = request.restrictions.counted();
        self.inside += 1;
        let line = &mut self.lines[at];
        self.served = line.taken;
        let bytes = request.disk_bytes.max(BYTES_MIN);
        line.taken += bytes * PARTS / u64::from(line.guest.weight);
        self.tell(depth);
    }

    fn tell(&self, depth: &Depth) {
        depth.tell(self.reactor, self.inside, self.wanting);
    }
}
