//! Changes of disks, on their way to the kernel.
//!
//! An association is a lease: once it is over, its host may write the same blocks by another
//! way. The reactor looks at the clock when a round begins, and a process that is stopped in
//! the middle of one would hand over what has become stale. So changes are gathered here,
//! with the ends of their leases, and the clock is read once more directly before the kernel
//! gets them. If the process was stopped after that look, it looks again, and takes back what it
//! had put into the submission queue.
//!
//! A stop that is shorter than a lease may have been long enough for a host to leave. If the round
//! began before a gap, the changes stay here until the reactor has learned which connections have
//! ended; those of ended ones are taken out then.

use std::time::Instant;

use cairn_rdma::Clock;
use io_uring::squeue;

use super::apart::GAP;
use crate::timely::Look;

/// A change that waits for the next system call.
struct Change {
    tag: u64,
    entry: squeue::Entry,
    /// When its lease ends, in nanoseconds since the target started.
    until_ns: u64,
}

/// A change in the submission queue.
pub(super) struct Queued {
    pub(super) tag: u64,
    /// When its lease ends, or the knowledge of its connection is too old.
    pub(super) until_ns: u64,
    /// How many entries were put into the queue before it, modulo 2^32.
    pub(super) place: u32,
}

/// The changes that the kernel gets with the next system call.
pub(super) struct Outgoing {
    changes: Vec<Change>,
    /// Those that are in the submission queue.
    queued: Vec<Queued>,
    /// The look at the clock by which those may be carried out.
    look: Option<Look>,
    /// The clock, and the time that it counts from. Without it leases do not end.
    clock: Option<(Clock, Instant)>,
    /// The end of the lease of those that come next.
    until_ns: u64,
    /// Until when what the reactor knows of connections is new enough for all of them.
    known_until_ns: u64,
}

impl Outgoing {
    /// None, with room for this many.
    pub(super) fn new(room: usize) -> Self {
        Self {
            changes: Vec::with_capacity(room),
            queued: Vec::with_capacity(room),
            look: None,
            clock: None,
            until_ns: u64::MAX,
            known_until_ns: u64::MAX,
        }
    }

    /// At that time the reactor knew of all ended connections.
    #[inline]
    pub(super) fn begin_round(&mut self, now_ns: u64) {
        self.known_until_ns = now_ns + GAP.as_nanos() as u64;
    }

    /// Until when what the reactor knows of connections is new enough to begin changes, in
    /// nanoseconds since the target started; `u64::MAX` without rounds.
    pub(super) fn known_until_ns(&self) -> u64 {
        self.known_until_ns
    }

    /// Leases end by this clock, whose times count from `started`.
    pub(super) fn set_clock(&mut self, clock: Clock, started: Instant) {
        self.clock = Some((clock, started));
    }

    /// What comes next may be carried out until then.
    #[inline(always)]
    pub(super) fn set_lease(&mut self, until_ns: u64) {
        self.until_ns = until_ns;
    }

    /// When the lease of what comes next ends.
    pub(super) fn until_ns(&self) -> u64 {
        self.until_ns
    }

    /// Nanoseconds since the target started; 0 without a clock.
    pub(super) fn now_ns(&self) -> u64 {
        self.clock.as_ref().map_or(0, read)
    }

    /// That of what comes next, for a worker that carries it out.
    pub(super) fn lease(&self) -> Lease {
        Lease {
            clock: self.clock.clone(),
            until_ns: self.until_ns,
        }
    }

    /// Whether what comes next may begin now: its lease has not ended, and there was no gap since
    /// the round began.
    pub(super) fn may_begin(&self) -> bool {
        let until_ns = self.until_ns.min(self.known_until_ns);
        until_ns == u64::MAX || self.now_ns() < until_ns
    }

    /// One more.
    #[inline]
    pub(super) fn add(&mut self, tag: u64, entry: squeue::Entry) {
        self.changes.push(Change {
            tag,
            entry,
            until_ns: self.until_ns,
        });
    }

    /// How many there are.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Takes those of a tag out; how many there were.
    pub(super) fn take_out(&mut self, tag: u64) -> usize {
        self.changes
            .extract_if(.., |change| change.tag == tag)
            .count()
    }

    /// Empties it, unless there was a gap: what may be carried out goes one way, which returns its
    /// place in the submission queue, and what may not goes the other.
    #[inline]
    pub(super) fn release(
        &mut self,
        mut carry_out: impl FnMut(&squeue::Entry) -> u32,
        mut refuse: impl FnMut(u64),
    ) {
        let ends = self.changes.iter().map(|change| change.until_ns);
        let first_end = ends.min().map(|end| end.min(self.known_until_ns));
        let now_ns = match &self.clock {
            Some(clock) if first_end.is_some_and(|end| end < u64::MAX) => {
                self.look = Some(Look::begin());
                read(clock)
            }
            _ => 0,
        };
        if self.known_until_ns <= now_ns {
            self.look = None;
            return;
        }
        for change in self.changes.drain(..) {
            let Change {
                tag,
                entry,
                until_ns,
            } = change;
            if until_ns <= now_ns {
                refuse(tag);
                continue;
            }
            let place = carry_out(&entry);
            let until_ns = until_ns.min(self.known_until_ns);
            if until_ns < u64::MAX {
                self.queued.push(Queued {
                    tag,
                    until_ns,
                    place,
                });
            }
        }
    }

    /// Whether changes that have leases are in the submission queue.
    #[inline]
    pub(super) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// The look by which they may be carried out, if no system call has used it.
    #[inline]
    pub(super) fn take_look(&mut self) -> Option<Look> {
        self.look.take()
    }

    /// Another look, and what time it is, in nanoseconds since the target started.
    pub(super) fn look_again(&self) -> (Look, u64) {
        let look = Look::begin();
        (look, self.now_ns())
    }

    /// When the first lease of those in the submission queue ends.
    pub(super) fn first_end(&self) -> u64 {
        let ends = self.queued.iter().map(|queued| queued.until_ns);
        ends.min().unwrap_or(u64::MAX)
    }

    /// Hands out those for which that holds.
    pub(super) fn take_back(
        &mut self,
        goes: impl Fn(&Queued) -> bool,
        take_back: impl FnMut(Queued),
    ) {
        let goes = |queued: &mut Queued| goes(queued);
        self.queued.extract_if(.., goes).for_each(take_back);
    }

    /// The kernel has all entries but the last `left` of those `pushed` so far.
    #[inline]
    pub(super) fn taken(&mut self, pushed: u32, left: u32) {
        if left == 0 {
            self.queued.clear();
            return;
        }
        let first = pushed.wrapping_sub(left);
        self.queued
            .retain(|queued| queued.place.wrapping_sub(first) < left);
    }

    /// As if the process had been stopped after the look.
    #[cfg(test)]
    pub(super) fn forget_look(&mut self) {
        self.look = Some(Look::long_ago());
    }
}

/// How long a change may begin.
pub(super) struct Lease {
    clock: Option<(Clock, Instant)>,
    until_ns: u64,
}

impl Lease {
    /// Nanoseconds since the target started; 0 without a clock.
    pub(super) fn now_ns(&self) -> u64 {
        self.clock.as_ref().map_or(0, read)
    }

    /// Whether it is too late at that time.
    pub(super) fn is_over(&self, now_ns: u64) -> bool {
        self.until_ns <= now_ns
    }
}

/// Nanoseconds since the target started.
fn read((clock, started): &(Clock, Instant)) -> u64 {
    clock.now().saturating_duration_since(*started).as_nanos() as u64
}
