//! Times and timers of a reactor.

use std::time::Instant;

use cairn_rdma::Clock;

use crate::metrics::Doing;
use cairn_disk::Idle;

#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) at: Instant,
    /// Nanoseconds since the target started.
    pub(super) ns: u64,
}

pub(super) struct Time {
    pub(super) clock: Clock,
    /// Origin of all times in nanoseconds, common to all reactors.
    pub(super) started: Instant,
    pub(super) now: Now,
    /// Activity of the reactor since [`Self::now`].
    pub(super) doing: Doing,
    /// True if the reactor slept since its last round, which may have begun long ago.
    pub(super) asleep: bool,
    pub(super) next_tick: Instant,
    /// Time of the next check for infrequent events, while busy.
    pub(super) next_check: Instant,
    pub(super) idle: Idle,
}

/// Way to wait for the next round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Begin at once; there may be more work.
    None,
    /// Begin at once, without expected work.
    Spin,
    /// Begin after yielding the core to other threads.
    Yield,
    /// Sleep until an event or the deadline, if there is one.
    Until(Option<Instant>),
}
