//! The time of a reactor: that of its round, when it looks at what comes seldom, and when it rests.

use std::time::Instant;

use cairn_rdma::Clock;

use crate::metrics::Doing;
use cairn_disk::Idle;

/// When a round began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) at: Instant,
    /// In nanoseconds since the target started.
    pub(super) ns: u64,
}

/// The clock of a reactor, and its timers.
pub(super) struct Time {
    pub(super) clock: Clock,
    /// What its times are counted from, as those of all others are.
    pub(super) started: Instant,
    /// When this round began.
    pub(super) now: Now,
    /// What it does with its time since [`Self::now`].
    pub(super) doing: Doing,
    /// Whether it rested since its last round: then it may be a while ago.
    pub(super) asleep: bool,
    pub(super) next_tick: Instant,
    /// When to look at what comes seldom, while busy.
    pub(super) next_check: Instant,
    pub(super) idle: Idle,
}

/// What a reactor does after a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Another round: there may be more to do.
    None,
    /// Another round, though there was nothing to do.
    Spin,
    /// The same, after other threads have had the core.
    Yield,
    /// To sleep until something happens or this time, if any, comes.
    Until(Option<Instant>),
}
