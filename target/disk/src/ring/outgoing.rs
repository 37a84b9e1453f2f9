//! Changes of disks, on their way to the kernel.
//!
//! An association is a lease: once it is over, its host may write the same blocks by another
//! way. The reactor looks at the clock when a round begins, and a process that is stopped in
//! the middle of one would hand over what has become stale. So changes are gathered here,
//! with the ends of their leases, and the clock is read once more directly before the kernel
//! gets them.

use std::time::Instant;

use cairn_rdma::Clock;
use io_uring::squeue;

/// A change that waits for the next system call.
struct Change {
    tag: u64,
    entry: squeue::Entry,
    /// When its lease ends, in nanoseconds since the target started.
    until_ns: u64,
}

/// The changes that the kernel gets with the next system call.
pub(super) struct Outgoing {
    changes: Vec<Change>,
    /// The clock, and the time that it counts from. Without it leases do not end.
    clock: Option<(Clock, Instant)>,
    /// The end of the lease of those that come next.
    until_ns: u64,
}

impl Outgoing {
    /// None, with room for this many.
    pub(super) fn new(room: usize) -> Self {
        Self {
            changes: Vec::with_capacity(room),
            clock: None,
            until_ns: u64::MAX,
        }
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

    /// Whether what comes next may not begin any more.
    pub(super) fn lease_is_over(&self) -> bool {
        let clock = self.clock.as_ref();
        self.until_ns < u64::MAX && clock.is_some_and(|clock| self.until_ns <= read(clock))
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

    /// Empties it: what may be carried out goes one way, and what may not goes the other.
    #[inline]
    pub(super) fn release(
        &mut self,
        mut carry_out: impl FnMut(&squeue::Entry),
        mut refuse: impl FnMut(u64),
    ) {
        let first_end = self.changes.iter().map(|change| change.until_ns).min();
        let now_ns = match &self.clock {
            Some(clock) if first_end.is_some_and(|end| end < u64::MAX) => read(clock),
            _ => 0,
        };
        for change in self.changes.drain(..) {
            if change.until_ns <= now_ns {
                refuse(change.tag);
            } else {
                carry_out(&change.entry);
            }
        }
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
