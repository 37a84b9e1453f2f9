//! Paths to one namespace: path selection and failover.
//!
//! [`PathSet`] tracks the link, the ANA state and the outstanding commands of each path, and
//! [`PathSet::choose`] selects a path as Linux does. [`judge`] and [`judge_loss`] decide the next
//! step of a command that failed. [`AnaLog`] parses log page 0Ch.
//!
//! # Writes with unknown outcome
//!
//! When a path is lost, its outstanding commands have no answer. Such a write may have been
//! executed fully, in part or not at all, or may still be queued in the target. The rule is that of
//! Linux: a command that is safe to repeat ([`requeue::is_safe`](super::requeue::is_safe)), as all
//! commands of a block layer are, goes to another path. Any other command returns to its caller.
//!
//! The first copy may still be inside the lost target. A paused target executes it when it
//! continues, after the second copy and after any later writes to the same blocks. A target
//! executes nothing once its keep alive timer has expired and the time reported as CQT has passed.
//! [`Doubts`] therefore delay commands that change blocks of an unanswered command by
//! [`time_in_doubt`]. The delay counts from the close of the lost connection, after which nothing
//! can restart the target's timer. The last answer is too early, since the target may have received
//! commands after it. Reads, and writes of other blocks, are sent at once.
//!
//! Two cases are not covered: a target that executes commands after its timer expired, and a write
//! submitted in time that stays in its disk for longer than CQT.

mod ana_log;
mod doubt;
mod verdict;

use alloc::vec::Vec;
use core::time::Duration;

use crate::wire::log::AnaState;

pub use ana_log::{AnaEntry, AnaLog, AnaLogError};
pub use doubt::{Doubts, time_in_doubt};
pub use verdict::{FAILOVERS_MAX, Verdict, judge, judge_loss};

/// Path selection policy among equally good paths, named as in Linux.
///
/// Linux's `numa` (the adapter nearest to the processor) has no use in a process with one polling
/// thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// `round-robin`: one path after the other.
    #[default]
    RoundRobin,
    /// `queue-depth`: the path with the fewest outstanding commands.
    QueueDepth,
}

/// Link state of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The controller accepts commands.
    Live,
    /// The controller is lost and may return.
    Reconnecting,
    /// The controller is gone, or has no access to the namespace.
    Lost,
}

/// Result of path selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Send the command on this path.
    Path(usize),
    /// Wait for a path.
    Wait,
    /// Fail the command: no path can become usable.
    Fail,
}

/// Maximum duration of ANA Change in units of ANATT, after which the controller is reset.
///
/// Linux uses the same value.
const CHANGE_LASTS_ANATT: u32 = 2;

#[derive(Clone, Copy, Debug)]
struct Path {
    link: Link,
    /// ANA state; `None` while unknown, or after a command failed because of it.
    ana: Option<AnaState>,
    /// True once `fast_io_fail_tmo` expired: commands do not wait for this path.
    fails_fast: bool,
    outstanding: u32,
    /// Deadline of the ANA Change state.
    change_until: Option<Duration>,
}

impl Path {
    fn is(&self, state: AnaState) -> bool {
        self.link == Link::Live && self.ana == Some(state)
    }

    fn is_usable(&self) -> bool {
        self.is(AnaState::OPTIMIZED) || self.is(AnaState::NON_OPTIMIZED)
    }

    /// True if the path may become usable.
    fn gives_hope(&self) -> bool {
        match self.link {
            // Persistent loss lasts as long as the association (Base, 8.1.3.4). Linux waits for
            // ever.
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
    /// Index of the path selected last.
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

    /// Adds a path in state [`Link::Reconnecting`] and returns its index.
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

    /// Sets the link state of a path. The ANA state must be read again after each reconnection.
    pub fn set_link(&mut self, path: usize, link: Link) {
        let path = &mut self.paths[path];
        if link != Link::Live || path.link != Link::Live {
            (path.ana, path.change_until) = (None, None);
        }
        path.link = link;
        path.fails_fast &= link == Link::Reconnecting;
    }

    /// Marks a path for which commands no longer wait.
    pub fn set_fails_fast(&mut self, path: usize) {
        self.paths[path].fails_fast = true;
    }

    /// Sets the ANA state of a path; `anatt` is the controller's ANATT.
    pub fn set_ana(&mut self, path: usize, state: AnaState, anatt: Duration, now: Duration) {
        let path = &mut self.paths[path];
        path.ana = Some(state);
        path.change_until = match path.change_until {
            _ if state != AnaState::CHANGE => None,
            None => Some(now + anatt * CHANGE_LASTS_ANATT),
            since => since,
        };
    }

    /// Excludes a path until its ANA state is read again.
    ///
    /// Called when a command failed because of the ANA state.
    pub fn doubt_ana(&mut self, path: usize) {
        self.paths[path].ana = None;
    }

    /// ANA state of a path, if known.
    #[must_use]
    pub fn ana(&self, path: usize) -> Option<AnaState> {
        self.paths[path].ana
    }

    /// Link state of a path.
    #[must_use]
    pub fn link(&self, path: usize) -> Link {
        self.paths[path].link
    }

    /// True if commands may use the path.
    #[must_use]
    pub fn is_usable(&self, path: usize) -> bool {
        self.paths[path].is_usable()
    }

    /// Number of outstanding commands on a path.
    #[must_use]
    pub fn outstanding(&self, path: usize) -> u32 {
        self.paths[path].outstanding
    }

    /// Counts a command sent on the path.
    pub fn begin(&mut self, path: usize) {
        self.paths[path].outstanding += 1;
    }

    /// Counts a command completed on the path.
    pub fn end(&mut self, path: usize) {
        self.paths[path].outstanding -= 1;
    }

    /// Selects the path for the next command among those for which `has_room` is true.
    pub fn choose(&mut self, has_room: impl Fn(usize) -> bool) -> Choice {
        let best = self
            .choose_among(AnaState::OPTIMIZED, &has_room)
            .or_else(|| {
                // A full optimized path does not make a non-optimized one eligible.
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
        // Starts after the last selected path, which comes last.
        let mut in_turn = (1..=count)
            .map(|step| (self.last + step) % count)
            .filter(|&path| self.paths[path].is(state) && has_room(path));
        match self.policy {
            Policy::RoundRobin => in_turn.next(),
            Policy::QueueDepth => in_turn.min_by_key(|&path| self.paths[path].outstanding),
        }
    }

    /// Time of the next call to [`tick`](Self::tick).
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.paths.iter().filter_map(|path| path.change_until).min()
    }

    /// Returns a path whose ANA Change state exceeded its deadline, to reset its controller.
    pub fn tick(&mut self, now: Duration) -> Option<usize> {
        let overdue = |path: &Path| path.change_until.is_some_and(|until| until <= now);
        let index = self.paths.iter().position(overdue)?;
        self.paths[index].change_until = None;
        Some(index)
    }
}

#[cfg(test)]
mod tests;
