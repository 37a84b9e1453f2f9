//! Set of reactors: one thread each, or all on the caller's thread in a simulation.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::panics::Panics;
use crate::reactor::{self, Reactor, ReactorHandle, Rest, Start};
use crate::registry::{Mailbox, Message};

pub(super) enum Reactors {
    /// Reactors with threads, which end after `Message::Stop`.
    Threads(Vec<ReactorHandle>),
    /// Reactors stepped by the caller.
    Stepped(Vec<Reactor>),
}

impl Reactors {
    /// True if the reactors have threads; false in simulations.
    pub(super) fn has_threads(&self) -> bool {
        matches!(self, Self::Threads(_))
    }

    pub(super) fn launch(&mut self, start: Start, panics: &Arc<Panics>) -> io::Result<()> {
        match self {
            Self::Threads(reactors) => {
                reactors.push(reactor::start(start, Arc::clone(panics))?);
            }
            // The thread belongs to the caller: do not pin it.
            Self::Stepped(reactors) => reactors.push(Reactor::new(Start {
                core: None,
                ..start
            })?),
        }
        Ok(())
    }

    /// Stops all reactors and waits until `deadline` for their threads.
    pub(super) fn stop(&mut self, mailboxes: &[Mailbox], deadline: Instant) -> Result<(), String> {
        for reactor in mailboxes {
            reactor.send(Message::Stop);
        }
        let Self::Threads(reactors) = self else {
            return Ok(());
        };
        let join = |reactor: ReactorHandle| reactor.join_until(deadline);
        // Wait for all threads, even if one fails.
        let ends: Vec<_> = reactors.drain(..).map(join).collect();
        ends.into_iter().collect()
    }

    /// Steps each stepped reactor until settled; returns how long they may rest.
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

    /// Runs one round of each stepped reactor, as on its own thread.
    pub(super) fn round(&mut self, now: Instant) {
        if let Self::Stepped(reactors) = self {
            for reactor in reactors {
                reactor.step(now);
            }
        }
    }

    /// Abandons all commands of stepped reactors.
    pub(super) fn kill(&mut self) {
        if let Self::Stepped(reactors) = self {
            reactors.iter_mut().for_each(Reactor::abandon_all);
        }
    }

    /// Stepped reactors; empty with threads.
    pub(super) fn stepped(&self) -> &[Reactor] {
        match self {
            Self::Threads(_) => &[],
            Self::Stepped(reactors) => reactors,
        }
    }
}
