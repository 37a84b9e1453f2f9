//! Operations that the ring hands to threads of the kernel, flushes and fallocates, by
//! turns of their disk: a disk that hangs takes few of these threads from others.
//!
//! One flush of a disk is under way at a time. Those that come meanwhile wait, and the
//! next flush, which begins after all of them came, ends them all.

use super::Reactor;
use crate::backend::{BlockOp, Errno, Progress};
use crate::request::{List, Request, RequestId, RequestTable, Stage};

/// Fallocates of a disk that are under way at a time.
const ALLOCATIONS_MAX: u32 = 2;

/// What takes turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Flush,
    Allocation,
}

impl Turn {
    /// That of an operation, if it needs one.
    pub(super) fn of(op: BlockOp) -> Option<Self> {
        match op {
            BlockOp::Read | BlockOp::Write { .. } | BlockOp::Verify => None,
            BlockOp::Flush => Some(Self::Flush),
            BlockOp::WriteZeroes { .. } | BlockOp::Deallocate => Some(Self::Allocation),
        }
    }
}

/// The turns of one disk.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Whether a flush is under way, and the others that it ends.
    flushing: bool,
    joined: List,
    /// Flushes for the next turn.
    flushes: List,
    /// How many fallocates are under way, and those that wait.
    allocating: u32,
    allocations: List,
}

impl Turns {
    /// Has a request wait, if it is not its turn.
    pub(super) fn must_wait(
        &mut self,
        turn: Turn,
        id: RequestId,
        requests: &mut RequestTable,
    ) -> bool {
        let (waits, list) = match turn {
            Turn::Flush => (self.flushing, &mut self.flushes),
            Turn::Allocation => (
                self.allocating >= ALLOCATIONS_MAX || !self.allocations.is_empty(),
                &mut self.allocations,
            ),
        };
        if waits {
            requests.push_back(list, id, Stage::AwaitingTurn);
        }
        waits
    }

    /// An operation begins.
    pub(super) fn begins(&mut self, turn: Turn) {
        match turn {
            Turn::Flush => self.flushing = true,
            Turn::Allocation => self.allocating += 1,
        }
    }

    /// It has ended.
    pub(super) fn ends(&mut self, turn: Turn) {
        match turn {
            Turn::Flush => self.flushing = false,
            Turn::Allocation => self.allocating -= 1,
        }
    }

    /// Takes out requests that wait.
    pub(super) fn take_out(
        &mut self,
        requests: &mut RequestTable,
        goes: impl Fn(&Request) -> bool,
        mut each: impl FnMut(RequestId),
    ) {
        for list in [&mut self.joined, &mut self.flushes, &mut self.allocations] {
            if !list.is_empty() {
                requests.take_out(list, &goes, &mut each);
            }
        }
    }

    /// The flush under way did not happen: those that it was to end wait for the next.
    fn disjoin(&mut self, requests: &mut RequestTable) {
        let mut first = std::mem::take(&mut self.joined);
        while let Some(id) = requests.pop_front(&mut self.flushes) {
            requests.push_back(&mut first, id, Stage::AwaitingTurn);
        }
        self.flushes = first;
    }
}

impl Reactor {
    /// An operation that had a turn has left the backend, with this result unless it is to
    /// be tried again. The next ones begin.
    pub(super) fn turn_ended(&mut self, disk: u32, turn: Turn, result: Option<Result<(), Errno>>) {
        let turns = &mut self.disks[disk].turns;
        turns.ends(turn);
        if turn == Turn::Flush {
            match result {
                Some(result) if result != Err(Errno(libc::ECANCELED)) => {
                    let joined = std::mem::take(&mut turns.joined);
                    self.end_all(joined, result);
                }
                _ => turns.disjoin(&mut self.requests),
            }
        }
        self.serve_turns(disk);
    }

    /// Ends flushes that another one stood for.
    fn end_all(&mut self, mut flushes: List, result: Result<(), Errno>) {
        while let Some(id) = self.requests.pop_front(&mut flushes) {
            self.block_ended(id, result);
        }
    }

    /// Begins with those whose turn it is.
    fn serve_turns(&mut self, disk: u32) {
        loop {
            let turns = &mut self.disks[disk].turns;
            let next = if !turns.flushing && !turns.flushes.is_empty() {
                let next = self.requests.pop_front(&mut turns.flushes);
                turns.joined = std::mem::take(&mut turns.flushes);
                next
            } else if turns.allocating < ALLOCATIONS_MAX {
                self.requests.pop_front(&mut turns.allocations)
            } else {
                None
            };
            let Some(id) = next else { return };
            if let Progress::Done(result) = self.hand_over(id) {
                self.block_ended(id, result);
            }
        }
    }

    /// Whether a request has to wait for its turn at its disk.
    pub(super) fn waits_for_turn(&mut self, id: RequestId) -> bool {
        let request = &self.requests[id];
        let block = request.block.as_ref().expect("block I/O is planned");
        let Some(turn) = Turn::of(block.op) else {
            return false;
        };
        let disk = &mut self.disks[request.disk.expect("block I/O has a disk")];
        disk.backend().is_asked() && disk.turns.must_wait(turn, id, &mut self.requests)
    }
}
