//! Path selection and failover for a namespace with several controllers.
//!
//! [`PathSet`] tracks link, ANA state and commands in flight of each path, and selects paths as
//! Linux does.
//!
//! # Writes with unknown outcome
//!
//! An unanswered write of a lost path may be executed completely, partly, later or never. As in
//! Linux, repeatable commands ([`requeue::is_safe`](super::requeue::is_safe)) are sent on another
//! path, and others return to the caller.
//!
//! Until KATO and CQT have passed, a target that was paused may execute such a write over newer
//! data. [`Doubts`] therefore delays commands that change the same blocks. The delay,
//! [`time_in_doubt`], starts when the lost connection closes, because the target may receive
//! commands until then.
//!
//! The delay does not protect against a target that ignores its keep alive timer, or a write that
//! stays in a disk longer than CQT.

mod ana_log;
mod doubt;
mod verdict;

use alloc::vec::Vec;
use core::time::Duration;

use crate::wire::log::AnaState;

pub use ana_log::{AnaEntry, AnaLog, AnaLogError};
pub use doubt::{Doubts, time_in_doubt};
pub use verdict::{FAILOVERS_MAX, Verdict, judge, judge_loss};

/// Policy among paths with equal ANA state, named as in Linux.
///
/// `numa` is not supported: with one polling thread, no path is nearer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Uses the paths in rotation.
    #[default]
    RoundRobin,
    /// Uses the path with the fewest commands in flight.
    QueueDepth,
}

/// Link state of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The controller accepts commands.
    Live,
    /// The controller is lost, and may return.
    Reconnecting,
    /// The controller is lost permanently, or lacks the namespace.
    Lost,
}

/// Result of a path selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Index of the path for the command.
    Path(usize),
    /// The command waits for a usable path.
    Wait,
    /// The command fails: no path is expected to become usable.
    Fail,
}

/// Maximum duration of ANA Change in units of ANATT, as in Linux.
const CHANGE_LASTS_ANATT: u32 = 2;

#[derive(Clone, Copy, Debug)]
struct Path {
    link: Link,
    ana: Option<AnaState>,
    /// True if `fast_io_fail_tmo` expired: no command waits for this path.
    fails_fast: bool,
    outstanding: u32,
    change_until: Option<Duration>,
}

impl Path {
    fn is(&self, state: AnaState) -> bool {
        self.link == Link::Live && self.ana == Some(state)
    }

    fn is_usable(&self) -> bool {
        self.is(AnaState::OPTIMIZED) || self.is(AnaState::NON_OPTIMIZED)
    }

    fn gives_hope(&self) -> bool {
        match self.link {
            // No command waits for a path in ANA Persistent Loss, which lasts as long as the
            // association (Base, 8.1.3.4). Linux waits without limit.
            Link::Live => self.ana != Some(AnaState::PERSISTENT_LOSS),
            Link::Reconnecting => !self.fails_fast,
            Link::Lost => false,
        }
    }
}

/// Paths to one namespace, addressed by index.
#[derive(Debug, Default)]
pub struct PathSet {
    paths: Vec<Path>,
    policy: Policy,
    last: usize,
}

impl PathSet {
    /// Creates a set without paths.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }

    /// Adds a path that is [`Link::Reconnecting`]; returns its index.
    pub fn add(&mut self) -> usize {
        self.paths.push(Path {
            link: Link::Reconnecting,
            ana: None,
            fails_fast: false,
            outstanding: 0,
            change_until: None,
        });
        self.paths.len() - 1
    }

    /// Sets the link state; discards the ANA state unless the path stays live.
    pub fn set_link(&mut self, path: usize, link: Link) {
        let path = &mut self.paths[path];
        if link != Link::Live || path.link != Link::Live {
            (path.ana, path.change_until) = (None, None);
        }
        path.link = link;
        path.fails_fast &= link == Link::Reconnecting;
    }

    /// Marks a reconnecting path: commands no longer wait for it.
    pub fn set_fails_fast(&mut self, path: usize) {
        self.paths[path].fails_fast = true;
    }

    /// Sets the ANA state; `anatt` is ANATT of the controller.
    pub fn set_ana(&mut self, path: usize, state: AnaState, anatt: Duration, now: Duration) {
        let path = &mut self.paths[path];
        path.ana = Some(state);
        path.change_until = match path.change_until {
            _ if state != AnaState::CHANGE => None,
            None => Some(now + anatt * CHANGE_LASTS_ANATT),
            since => since,
        };
    }

    /// Discards the ANA state; until [`Self::set_ana`], the path is unusable.
    pub fn doubt_ana(&mut self, path: usize) {
        self.paths[path].ana = None;
    }

    /// ANA state, if known.
    #[must_use]
    pub fn ana(&self, path: usize) -> Option<AnaState> {
        self.paths[path].ana
    }

    /// Link state.
    #[must_use]
    pub fn link(&self, path: usize) -> Link {
        self.paths[path].link
    }

    /// True if the path is live, and ANA optimized or non-optimized.
    #[must_use]
    pub fn is_usable(&self, path: usize) -> bool {
        self.paths[path].is_usable()
    }

    /// Number of outstanding commands.
    #[must_use]
    pub fn outstanding(&self, path: usize) -> u32 {
        self.paths[path].outstanding
    }

    /// Counts a sent command.
    pub fn begin(&mut self, path: usize) {
        self.paths[path].outstanding += 1;
    }

    /// Counts an ended command.
    pub fn end(&mut self, path: usize) {
        self.paths[path].outstanding -= 1;
    }

    /// Selects the path for the next command; `has_room` tests whether a path can take it.
    pub fn choose(&mut self, has_room: impl Fn(usize) -> bool) -> Choice {
        let best = self
            .choose_among(AnaState::OPTIMIZED, &has_room)
            .or_else(|| {
                // If all optimized paths are full, the command waits.
                let better = self.paths.iter().any(|path| path.is(AnaState::OPTIMIZED));
                (!better).then(|| self.choose_among(AnaState::NON_OPTIMIZED, &has_room))?
            });
        match best {
            Some(path) => {
                self.last = path;
                Choice::Path(path)
            }
            None if self.paths.iter().any(Path::gives_hope) => Choice::Wait,
            None => Choice::Fail,
        }
    }

    fn choose_among(&self, state: AnaState, has_room: &impl Fn(usize) -> bool) -> Option<usize> {
        let count = self.paths.len();
        let mut in_turn = (1..=count)
            .map(|step| (self.last + step) % count)
            .filter(|&path| self.paths[path].is(state) && has_room(path));
        match self.policy {
            Policy::RoundRobin => in_turn.next(),
            Policy::QueueDepth => in_turn.min_by_key(|&path| self.paths[path].outstanding),
        }
    }

    /// Time of the next [`tick`](Self::tick).
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.paths.iter().filter_map(|path| path.change_until).min()
    }

    /// Returns a path whose ANA Change lasted too long: reset its controller.
    pub fn tick(&mut self, now: Duration) -> Option<usize> {
        let overdue = |path: &Path| path.change_until.is_some_and(|until| until <= now);
        let index = self.paths.iter().position(overdue)?;
        self.paths[index].change_until = None;
        Some(index)
    }
}

#[cfg(test)]
mod tests;
