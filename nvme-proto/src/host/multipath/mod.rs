//! Several paths to one namespace: which one a command takes, and which command
//! takes another one.
//!
//! [`PathSet`] knows of each path whether its controller is there, what ANA says of
//! it, and how many commands are on it; [`PathSet::choose`] picks one as Linux does.
//! [`judge`] and [`judge_loss`] say what becomes of a command that did not succeed.
//! [`AnaLog`] reads log page 0Ch, wherever it may come from.
//!
//! # A write in doubt
//!
//! A path that breaks takes with it the answers to what was under way. Such a write
//! may have been carried out, not at all or in part, or may still be on its way to
//! the disk. The rule is Linux's: a command that does the same twice as once
//! ([`requeue::is_safe`](super::requeue::is_safe)), and that is everything a block
//! layer sends, goes to another path; whatever else goes back to its caller.
//!
//! The first copy may still be inside the target that was lost: a paused target carries
//! it out when it continues, after the second copy and after whatever was written to the
//! same blocks since. Time ends that: a target carries out nothing after its keep alive
//! timer ran out and the time it reports to need then (CQT) has passed. So [`Doubts`]
//! hold a command that changes blocks which a lost one may still change for
//! [`time_in_doubt`], counted from the close of the lost connection: after that nothing
//! reaches the target that could restart its timer. The last answer would be too early
//! to count from, since the target may have received commands after it. Reads, and
//! writes of other blocks, go at once.
//!
//! A target that executes commands after its timer ran out is not fenced by this, nor is
//! a write that it submitted in time and that its disk holds for longer than CQT.

mod ana_log;
mod doubt;
mod verdict;

use alloc::vec::Vec;
use core::time::Duration;

use crate::wire::log::AnaState;

pub use ana_log::{AnaEntry, AnaLog, AnaLogError};
pub use doubt::{Doubts, time_in_doubt};
pub use verdict::{FAILOVERS_MAX, Verdict, judge, judge_loss};

/// How to choose among paths that are equally good, by Linux's names. (Its `numa`
/// chooses the adapter that is nearest to a processor, of which a process that is
/// polled by one thread has one.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// `round-robin`: one after the other.
    #[default]
    RoundRobin,
    /// `queue-depth`: the one with the fewest commands on it.
    QueueDepth,
}

/// Whether a path's controller is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// It takes commands.
    Live,
    /// It does not, and may again.
    Reconnecting,
    /// It never will again, or does not lead to the namespace.
    Lost,
}

/// Where a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// By this path.
    Path(usize),
    /// Nowhere now: it waits for a path.
    Wait,
    /// Nowhere, and there is nothing to wait for.
    Fail,
}

/// How long ANA Change may last, in times ANATT; then the controller is reset, as
/// Linux does.
const CHANGE_LASTS_ANATT: u32 = 2;

#[derive(Clone, Copy, Debug)]
struct Path {
    link: Link,
    /// What ANA says of it; `None` until it is known, and again once a command was
    /// refused for it.
    ana: Option<AnaState>,
    /// Commands do not wait for it (`fast_io_fail_tmo`).
    fails_fast: bool,
    /// Commands on it.
    outstanding: u32,
    /// Until when it may be in ANA Change.
    change_until: Option<Duration>,
}

impl Path {
    fn is(&self, state: AnaState) -> bool {
        self.link == Link::Live && self.ana == Some(state)
    }

    fn is_usable(&self) -> bool {
        self.is(AnaState::OPTIMIZED) || self.is(AnaState::NON_OPTIMIZED)
    }

    /// Whether it may become usable.
    fn gives_hope(&self) -> bool {
        match self.link {
            // Persistent loss lasts as long as the association (Base, 8.1.3.4). Linux
            // would wait for ever.
            Link::Live => self.ana != Some(AnaState::PERSISTENT_LOSS),
            Link::Reconnecting => !self.fails_fast,
            Link::Lost => false,
        }
    }
}

/// The paths to one namespace, by their numbers.
#[derive(Debug, Default)]
pub struct PathSet {
    paths: Vec<Path>,
    policy: Policy,
    /// The path that was chosen last.
    last: usize,
}

impl PathSet {
    /// No path as yet.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }

    /// Adds a path that is being connected; returns its number: 0, 1, ...
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

    /// Whether a path's controller is there. What ANA says of it is to be read anew
    /// each time it comes back.
    pub fn set_link(&mut self, path: usize, link: Link) {
        let path = &mut self.paths[path];
        if link != Link::Live || path.link != Link::Live {
            (path.ana, path.change_until) = (None, None);
        }
        path.link = link;
        path.fails_fast &= link == Link::Reconnecting;
    }

    /// Commands wait for this path no longer.
    pub fn set_fails_fast(&mut self, path: usize) {
        self.paths[path].fails_fast = true;
    }

    /// What ANA says of a path, and the controller's ANATT.
    pub fn set_ana(&mut self, path: usize, state: AnaState, anatt: Duration, now: Duration) {
        let path = &mut self.paths[path];
        path.ana = Some(state);
        path.change_until = match path.change_until {
            _ if state != AnaState::CHANGE => None,
            None => Some(now + anatt * CHANGE_LASTS_ANATT),
            since => since,
        };
    }

    /// A command was refused for its ANA state: the path is not used until that is
    /// read anew.
    pub fn doubt_ana(&mut self, path: usize) {
        self.paths[path].ana = None;
    }

    /// What ANA says of a path, if that is known.
    #[must_use]
    pub fn ana(&self, path: usize) -> Option<AnaState> {
        self.paths[path].ana
    }

    /// Whether a path's controller is there.
    #[must_use]
    pub fn link(&self, path: usize) -> Link {
        self.paths[path].link
    }

    /// Whether commands may take a path.
    #[must_use]
    pub fn is_usable(&self, path: usize) -> bool {
        self.paths[path].is_usable()
    }

    /// Commands on a path.
    #[must_use]
    pub fn outstanding(&self, path: usize) -> u32 {
        self.paths[path].outstanding
    }

    /// A command took a path.
    pub fn begin(&mut self, path: usize) {
        self.paths[path].outstanding += 1;
    }

    /// A command left a path.
    pub fn end(&mut self, path: usize) {
        self.paths[path].outstanding -= 1;
    }

    /// The path for the next command, among those that `has_room`.
    pub fn choose(&mut self, has_room: impl Fn(usize) -> bool) -> Choice {
        let best = self
            .choose_among(AnaState::OPTIMIZED, &has_room)
            .or_else(|| {
                // A worse path does not stand in for a better one that is only full.
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
        // From the one after the last on, and that one at the end.
        let mut in_turn = (1..=count)
            .map(|step| (self.last + step) % count)
            .filter(|&path| self.paths[path].is(state) && has_room(path));
        match self.policy {
            Policy::RoundRobin => in_turn.next(),
            Policy::QueueDepth => in_turn.min_by_key(|&path| self.paths[path].outstanding),
        }
    }

    /// When to [`tick`](Self::tick) at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.paths.iter().filter_map(|path| path.change_until).min()
    }

    /// A path that has been in ANA Change for too long: its controller is to be reset.
    pub fn tick(&mut self, now: Duration) -> Option<usize> {
        let overdue = |path: &Path| path.change_until.is_some_and(|until| until <= now);
        let index = self.paths.iter().position(overdue)?;
        self.paths[index].change_until = None;
        Some(index)
    }
}

#[cfg(test)]
mod tests;
