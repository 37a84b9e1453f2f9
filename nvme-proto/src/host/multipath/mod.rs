//! Paths to one namespace: path selection and failover.
//!
//! [`PathSet`] tracks each path's link, ANA state and outstanding commands and selects a path as
//! Linux does. [`judge`] and [`judge_loss`] decide on failed commands. [`AnaLog`] parses log page
//! 0Ch.
//!
//! # Writes with unknown outcome
//!
//! An unanswered write of a lost path may have been executed fully, in part or not at all, or may
//! still be queued in the target. As in Linux, a command that is safe to repeat
//! ([`requeue::is_safe`](super::requeue::is_safe)) goes to another path, and any other returns to
//! its caller.
//!
//! A paused target executes its copy when it continues, perhaps after later writes to the same
//! blocks. A target executes nothing after its keep alive timer and CQT have expired. [`Doubts`]
//! therefore delay commands that change the same blocks by [`time_in_doubt`]. The delay starts when
//! the lost connection closes: from then on nothing restarts the target's timer, whereas commands
//! may have arrived after the last response.
//!
//! Not covered are a target that executes commands after its timer expired, and a write that stays
//! in its disk for longer than CQT.

mod ana_log;
mod doubt;
mod verdict;

use alloc::vec::Vec;
use core::time::Duration;

use crate::wire::log::AnaState;

pub use ana_log::{AnaEntry, AnaLog, AnaLogError};
pub use doubt::{Doubts, time_in_doubt};
pub use verdict::{FAILOVERS_MAX, Verdict, judge, judge_loss};

/// Policy for equally good paths, named as in Linux.
///
/// `numa` (the adapter nearest to the processor) has no use with one polling thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Selects the paths one after the other.
    #[default]
    RoundRobin,
    /// The path with the fewest outstanding commands.
    QueueDepth,
}

/// Link state of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The controller accepts commands.
    Live,
    /// The controller is lost and may return.
    Reconnecting,
    /// The controller is lost, or has no access to the namespace.
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

/// Maximum duration of ANA Change in units of ANATT, as in Linux; the controller is then reset.
const CHANGE_LASTS_ANATT: u32 = 2;

#[derive(Clone, Copy, Debug)]
struct Path {
    link: Link,
    /// `None` if unknown, or if a command failed because of the state.
    ana: Option<AnaState>,
    /// True once `fast_io_fail_tmo` expired for commands that wait for this path.
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

    /// Sets the link state; each reconnection requires a new read of the ANA state.
    pub fn set_link(&mut self, path: usize, link: Link) {
        let path = &mut self.paths[path];
        if link != Link::Live || path.link != Link::Live {
            (path.ana, path.change_until) = (None, None);
        }
        path.link = link;
        path.fails_fast &= link == Link::Reconnecting;
    }

    /// Marks a path for which no command waits.
    pub fn set_fails_fast(&mut self, path: usize) {
        self.paths[path].fails_fast = true;
    }

    /// Sets the ANA state; `anatt` is the controller's ANATT.
    pub fn set_ana(&mut self, path: usize, state: AnaState, anatt: Duration, now: Duration) {
        let path = &mut self.paths[path];
        path.ana = Some(state);
        path.change_until = match path.change_until {
            _ if state != AnaState::CHANGE => None,
            None => Some(now + anatt * CHANGE_LASTS_ANATT),
            since => since,
        };
    }

    /// Excludes a path after an ANA error until its ANA state is read again.
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

    /// Counts a sent command.
    pub fn begin(&mut self, path: usize) {
        self.paths[path].outstanding += 1;
    }

    /// Counts a completed command.
    pub fn end(&mut self, path: usize) {
        self.paths[path].outstanding -= 1;
    }

    /// Selects the path for the next command among those with room.
    pub fn choose(&mut self, has_room: impl Fn(usize) -> bool) -> Choice {
        let best = self
            .choose_among(AnaState::OPTIMIZED, &has_room)
            .or_else(|| {
                // A non-optimized path remains ineligible while an optimized one is full.
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
        // The last selected path comes last.
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

    /// Returns a path whose controller must be reset because ANA Change exceeded its deadline.
    pub fn tick(&mut self, now: Duration) -> Option<usize> {
        let overdue = |path: &Path| path.change_until.is_some_and(|until| until <= now);
        let index = self.paths.iter().position(overdue)?;
        self.paths[index].change_until = None;
        Some(index)
    }
}

#[cfg(test)]
mod tests;
