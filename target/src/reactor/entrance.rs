//! The entrance of a disk, for commands that do not go straight in: those that take turns, and all where the disk has so many at a
//! time. What is beyond these waits, in a line for each host.
//!
//! The line that has taken least of its host's part goes first. What it takes is counted in bytes, so that hosts share a
//! disk that is busy evenly, or by their weights, whatever the size of their commands and however many each sends.

use super::turns::Turns;
use crate::depth::Depth;
use crate::ids::ShareId;
use crate::request::{List, Request, RequestId, RequestTable, Stage};

/// What a command takes at least: a disk does not do smaller ones any faster.
const BYTES_MIN: u64 = 4096;

/// Parts of a byte, so that large weights divide small commands.
const PARTS: u64 = 64;

/// Whose command it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guest {
    pub(super) share: Option<ShareId>,
    pub(super) weight: u32,
}

/// The commands of a host that wait.
#[derive(Debug)]
struct Line {
    guest: Guest,
    waiting: List,
    count: u32,
    /// What its host has taken, in parts of its weight.
    taken: u64,
}

/// Of one disk and one reactor.
#[derive(Debug)]
pub(super) struct Entrance {
    /// Operations that take turns.
    pub(super) turns: Turns,
    reactor: usize,
    /// Commands that the disk has.
    inside: u32,
    /// Weights of the hosts that wait.
    wanting: u32,
    lines: Vec<Line>,
    /// What the line had taken that was the last to go on.
    served: u64,
}

impl Entrance {
    /// No command is there.
    pub(super) fn new(reactor: usize, depth: &Depth) -> Self {
        // One before it, of a reactor that panicked, may have left something there.
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

    /// Lets a command in, or has it wait.
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

    /// The next that goes in.
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

    /// The disk no longer has a command.
    pub(super) fn leaves(&mut self, depth: &Depth, request: &mut Request) {
        request.door = request.door.limited();
        self.inside -= 1;
        self.tell(depth);
    }

    /// Takes out requests that wait.
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

    /// The line of a host. One that was away has saved nothing up meanwhile.
    fn line_of(&mut self, guest: Guest) -> usize {
        let of = |line: &Line| line.guest.share == guest.share;
        let Some(at) = self.lines.iter().position(of) else {
            // Others that were away as long have nothing more to remember.
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
        request.door = request.door.inside();
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
