//! Changes of disks that wait for submission to the kernel.
//!
//! After the end of an association's lease, the host may write the same blocks through another
//! path. The clock is therefore read directly before submission, and again if the process was
//! stopped since. Changes whose lease has ended leave the submission queue. After a gap
//! ([`ROUND_GAP`]), changes wait until the reactor has processed closed connections.

use std::time::Instant;

use cairn_base::Clock;
use io_uring::squeue;

use super::apart::ROUND_GAP;
use crate::timely::Look;

struct Change {
    tag: u64,
    entry: squeue::Entry,
    /// End of the lease, in nanoseconds since the target's start.
    until_ns: u64,
}

pub(super) struct Queued {
    pub(super) tag: u64,
    /// Time in nanoseconds after which the entry must not be submitted: the end of the lease, or
    /// [`ROUND_GAP`] after the round's start if earlier.
    pub(super) until_ns: u64,
    pub(super) place: u32,
}

pub(super) struct Outgoing {
    changes: Vec<Change>,
    queued: Vec<Queued>,
    look: Option<Look>,
    /// Clock and time origin. Without a clock, leases do not end.
    clock: Option<(Clock, Instant)>,
    until_ns: u64,
    /// Time in nanoseconds after which no change may begin: [`ROUND_GAP`] after the round's start,
    /// or `u64::MAX` without rounds.
    known_until_ns: u64,
    lacks_room: bool,
}

impl Outgoing {
    pub(super) fn new(room: usize) -> Self {
        Self {
            changes: Vec::with_capacity(room),
            queued: Vec::with_capacity(room),
            look: None,
            clock: None,
            until_ns: u64::MAX,
            known_until_ns: u64::MAX,
            lacks_room: false,
        }
    }

    #[inline]
    pub(super) fn begin_round(&mut self, now_ns: u64) {
        self.known_until_ns = now_ns + ROUND_GAP.as_nanos() as u64;
    }

    pub(super) fn known_until_ns(&self) -> u64 {
        self.known_until_ns
    }

    pub(super) fn set_clock(&mut self, clock: Clock, started: Instant) {
        self.clock = Some((clock, started));
    }

    #[inline(always)]
    pub(super) fn set_lease(&mut self, until_ns: u64) {
        self.until_ns = until_ns;
    }

    pub(super) fn until_ns(&self) -> u64 {
        self.until_ns
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.clock.as_ref().map_or(0, read)
    }

    pub(super) fn lease(&self) -> Lease {
        Lease {
            clock: self.clock.clone(),
            until_ns: self.until_ns,
        }
    }

    pub(super) fn may_begin(&self) -> bool {
        let until_ns = self.until_ns.min(self.known_until_ns);
        until_ns == u64::MAX || self.now_ns() < until_ns
    }

    #[inline]
    pub(super) fn add(&mut self, tag: u64, entry: squeue::Entry) {
        self.changes.push(Change {
            tag,
            entry,
            until_ns: self.until_ns,
        });
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    pub(super) fn take_out(&mut self, tag: u64) -> usize {
        self.changes
            .extract_if(.., |change| change.tag == tag)
            .count()
    }

    /// Passes the first `room` changes to `carry_out`, which returns the position of each in the
    /// queue. If the lease of a change has ended, passes its tag to `refuse` instead. Does nothing
    /// if [`ROUND_GAP`] has passed since the start of the round.
    #[inline]
    pub(super) fn release(
        &mut self,
        room: usize,
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
            self.lacks_room = false;
            return;
        }
        // A queued entry's lease has ended. Without a clock reading, `enter` calls `look_again`,
        // which removes the entry.
        if self.first_end() <= now_ns {
            self.look = None;
        }
        self.lacks_room = self.changes.len() > room;
        for change in self.changes.drain(..room.min(self.changes.len())) {
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

    #[inline]
    pub(super) fn lacks_room(&self) -> bool {
        self.lacks_room && !self.changes.is_empty()
    }

    #[inline]
    pub(super) fn must_enter(&self) -> bool {
        self.has_queued() || self.lacks_room()
    }

    #[inline]
    pub(super) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    #[inline]
    pub(super) fn take_look(&mut self) -> Option<Look> {
        self.look.take()
    }

    pub(super) fn look_again(&self) -> (Look, u64) {
        let look = Look::begin();
        (look, self.now_ns())
    }

    pub(super) fn first_end(&self) -> u64 {
        let ends = self.queued.iter().map(|queued| queued.until_ns);
        ends.min().unwrap_or(u64::MAX)
    }

    pub(super) fn take_back(
        &mut self,
        goes: impl Fn(&Queued) -> bool,
        take_back: impl FnMut(Queued),
    ) {
        let goes = |queued: &mut Queued| goes(queued);
        self.queued.extract_if(.., goes).for_each(take_back);
    }

    /// Records that the kernel has taken entries. `pushed` counts all entries ever pushed, and the
    /// last `left` of them remain in the queue.
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

    #[cfg(test)]
    pub(super) fn forget_look(&mut self) {
        self.look = Some(Look::long_ago());
    }
}

pub(super) struct Lease {
    clock: Option<(Clock, Instant)>,
    until_ns: u64,
}

impl Lease {
    pub(super) fn now_ns(&self) -> u64 {
        self.clock.as_ref().map_or(0, read)
    }

    pub(super) fn is_over(&self, now_ns: u64) -> bool {
        self.until_ns <= now_ns
    }
}

fn read((clock, started): &(Clock, Instant)) -> u64 {
    clock.now().saturating_duration_since(*started).as_nanos() as u64
}
