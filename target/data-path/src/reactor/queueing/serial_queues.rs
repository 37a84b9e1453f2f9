//! Limits the flushes and allocations in progress at a disk, so that a hanging disk blocks few
//! kernel threads.
//!
//! A disk has one flush in progress; the next flush completes all flushes that arrive meanwhile.

use crate::request::{List, Request, RequestId, RequestTable, SerialKind, Stage};

const ALLOCATIONS_MAX: u32 = 2;

#[derive(Debug, Default)]
pub(in crate::reactor) struct SerialQueues {
    /// Requests in `joined` complete with the flush in progress; requests in `flushes` wait for the
    /// next flush.
    flushing: bool,
    joined: List,
    flushes: List,
    allocating: u32,
    allocations: List,
}

impl SerialQueues {
    pub(in crate::reactor) fn must_wait(
        &mut self,
        kind: SerialKind,
        id: RequestId,
        requests: &mut RequestTable,
    ) -> bool {
        let (waits, list) = match kind {
            SerialKind::Flush => (self.flushing, &mut self.flushes),
            SerialKind::Allocation => (
                self.allocating >= ALLOCATIONS_MAX || !self.allocations.is_empty(),
                &mut self.allocations,
            ),
        };
        if waits {
            requests.push_back(list, id, Stage::AwaitingTurn);
        }
        waits
    }

    pub(in crate::reactor) fn begins(&mut self, kind: SerialKind) {
        match kind {
            SerialKind::Flush => self.flushing = true,
            SerialKind::Allocation => self.allocating += 1,
        }
    }

    pub(in crate::reactor) fn ends(&mut self, kind: SerialKind) {
        match kind {
            SerialKind::Flush => self.flushing = false,
            SerialKind::Allocation => self.allocating -= 1,
        }
    }

    pub(in crate::reactor) fn take_out(
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

    pub(in crate::reactor) fn take_joined(&mut self) -> List {
        std::mem::take(&mut self.joined)
    }

    pub(in crate::reactor) fn next(&mut self, requests: &mut RequestTable) -> Option<RequestId> {
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

    /// Moves joined flushes back to the front of `flushes`, because the flush in progress was
    /// cancelled or will be retried.
    pub(in crate::reactor) fn disjoin(&mut self, requests: &mut RequestTable) {
        let mut first = std::mem::take(&mut self.joined);
        while let Some(id) = requests.pop_front(&mut self.flushes) {
            requests.push_back(&mut first, id, Stage::AwaitingTurn);
        }
        self.flushes = first;
    }
}
