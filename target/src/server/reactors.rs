//! The reactors: each on a thread of its own, or, in a simulation, all on the
//! caller's.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::panics::{Panics, Part};
use crate::reactor::{self, Reactor, ReactorHandle, Rest, Start};
use crate::registry::{Mailbox, Message};

/// The reactors of a target.
pub(super) enum Reactors {
    /// Threads, which end after `Message::Stop`.
    Threads {
        reactors: Vec<ReactorHandle>,
        panics: Arc<Panics>,
        /// Each task that has not ended has a copy.
        tasks: Arc<()>,
    },
    /// Moved along by the owner of the target.
    Stepped(Vec<Reactor>),
}

/// What takes its time and must not hold up the control plane.
pub(super) type Task = Box<dyn FnOnce() + Send>;

impl Reactors {
    /// Reactors on threads, none so far.
    pub(super) fn threads() -> Self {
        Self::Threads {
            reactors: Vec::new(),
            panics: Arc::new(Panics::new(true)),
            tasks: Arc::new(()),
        }
    }

    /// What counts the panics that end one job: in a simulation none does.
    pub(super) fn panics(&self) -> Arc<Panics> {
        match self {
            Self::Threads { panics, .. } => Arc::clone(panics),
            Self::Stepped(_) => Arc::new(Panics::new(false)),
        }
    }

    /// One more reactor.
    pub(super) fn launch(&mut self, start: Start) -> io::Result<()> {
        match self {
            Self::Threads {
                reactors, panics, ..
            } => {
                reactors.push(reactor::start(start, Arc::clone(panics))?);
            }
            // The thread is not ours to pin.
            Self::Stepped(reactors) => reactors.push(Reactor::new(Start {
                core: None,
                ..start
            })?),
        }
        Ok(())
    }

    /// Runs an task: in a simulation it takes no time.
    pub(super) fn run(&self, task: Task) {
        match self {
            Self::Threads { tasks, panics, .. } => {
                let (tasks, panics) = (Arc::clone(tasks), Arc::clone(panics));
                drop(tokio::task::spawn_blocking(move || {
                    panics.confine(Part::Flush, task);
                    drop(tasks);
                }));
            }
            Self::Stepped(_) => task(),
        }
    }

    /// Tasks that have not ended.
    pub(super) fn tasks(&self) -> usize {
        match self {
            Self::Threads { tasks, .. } => Arc::strong_count(tasks) - 1,
            Self::Stepped(_) => 0,
        }
    }

    /// Stops all, and waits until `deadline` for those on threads.
    pub(super) fn stop(&mut self, mailboxes: &[Mailbox], deadline: Instant) -> Result<(), String> {
        for reactor in mailboxes {
            reactor.send(Message::Stop);
        }
        let Self::Threads { reactors, .. } = self else {
            return Ok(());
        };
        let join = |reactor: ReactorHandle| reactor.join_until(deadline);
        // All are waited for, also if one fails.
        let ends: Vec<_> = reactors.drain(..).map(join).collect();
        ends.into_iter().collect()
    }

    /// A round of each that is moved along by hand: whether there is time to rest.
    pub(super) fn step(&mut self, now: Instant) -> Rest {
        let Self::Stepped(reactors) = self else {
            return Rest::Until(None);
        };
        let mut all = Rest::Until(None);
        for reactor in reactors {
            all = match (all, reactor.step_settled(now)) {
                (Rest::Until(one), Rest::Until(other)) => {
                    Rest::Until([one, other].into_iter().flatten().min())
                }
                (Rest::None, _) | (_, Rest::None) => Rest::None,
                _ => Rest::Spin,
            };
        }
        all
    }

    /// A round of each that is moved along by hand, as it would run on its thread.
    pub(super) fn round(&mut self, now: Instant) {
        if let Self::Stepped(reactors) = self {
            for reactor in reactors {
                reactor.step(now);
            }
        }
    }

    /// Those that are moved along by hand owe no answer any more.
    pub(super) fn kill(&mut self) {
        if let Self::Stepped(reactors) = self {
            reactors.iter_mut().for_each(Reactor::abandon_all);
        }
    }

    /// Those that are moved along by hand.
    pub(super) fn stepped(&self) -> &[Reactor] {
        match self {
            Self::Threads { .. } => &[],
            Self::Stepped(reactors) => reactors,
        }
    }
}
