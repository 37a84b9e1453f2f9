//! Operations that the ring hands to threads of the kernel, flushes and fallocates, by
//! turns of their disk: a disk that hangs takes few of these threads from others.
//!
//! One flush of a disk is under way at a time. Those that come meanwhile wait, and the
//! next flush, which begins after all of them came, ends them all.

use crate::request::{List, Request, RequestId, RequestTable, Stage, Turn};

/// Fallocates of a disk that are under way at a time.
const ALLOCATIONS_MAX: u32 = 2;

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

    /// The flushes that the one which has just ended stood for.
    pub(super) fn take_joined(&mut self) -> List {
        std::mem::take(&mut self.joined)
    }

    /// The next request whose turn it is.
    pub(super) fn next(&mut self, requests: &mut RequestTable) -> Option<RequestId> {
        if !self.flushing && !self.flushes.is_empty() {
            let next = requests.pop_front(&mut self.flushes);
            self.joined = std::mem::take(&mut self.flushes);
            next
        } else if self.allocating < ALLOCATIONS_MAX {
            requests.pop_front(&mut self.allocations)
        } else {
            None
        }
    }

    /// The flush under way did not happen: those that it was to end wait for the next.
    pub(super) fn disjoin(&mut self, requests: &mut RequestTable) {
        let mut first = std::mem::take(&mut self.joined);
        while let Some(id) = requests.pop_front(&mut self.flushes) {
            requests.push_back(&mut first, id, Stage::AwaitingTurn);
        }
        self.flushes = first;
    }
}
