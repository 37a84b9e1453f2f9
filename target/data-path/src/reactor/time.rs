use std::time::Instant;

use cairn_base::Clock;

use crate::metrics::Doing;
use cairn_disk::Idle;

#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) at: Instant,
    pub(super) ns: u64,
}

pub(super) struct Time {
    pub(super) clock: Clock,
    pub(super) started: Instant,
    pub(super) now: Now,
    pub(super) doing: Doing,
    /// Whether the reactor slept, so that its last round may be long ago.
    pub(super) asleep: bool,
    pub(super) next_tick: Instant,
    pub(super) next_check: Instant,
    pub(super) idle: Idle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    None,
    Spin,
    Yield,
    Until(Option<Instant>),
}
