//! Connections that were admitted, until their reactor takes them.
//!
//! It takes a few at a time, so that a flood of them is no work of its rounds, and hosts that were here before go first. One
//! that loses its place meanwhile is taken out here: it costs the reactor nothing, and the places bound how many wait.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Admitted, PlaceId};

#[derive(Debug, Default)]
pub(super) struct Backlog {
    waiting: Mutex<Waiting>,
    /// Saves the lock when there is none, which is nearly always. Changed under the lock.
    any: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    known: VecDeque<Box<Admitted>>,
    strangers: VecDeque<Box<Admitted>>,
    /// The reactor has ended.
    closed: bool,
}

impl Backlog {
    /// Adds one. It is dropped, and so refused, once the mailbox is closed.
    pub(super) fn put(&self, admitted: Box<Admitted>) {
        let mut waiting = self.lock();
        if waiting.closed {
            drop(waiting);
            return drop(admitted);
        }
        let line = if admitted.place.is_known() {
            &mut waiting.known
        } else {
            &mut waiting.strangers
        };
        line.push_back(admitted);
        self.show(&waiting);
    }

    /// The next one.
    pub(super) fn take(&self) -> Option<Box<Admitted>> {
        if self.is_empty() {
            return None;
        }
        let mut waiting = self.lock();
        let known = waiting.known.pop_front();
        let next = known.or_else(|| waiting.strangers.pop_front());
        self.show(&waiting);
        next
    }

    /// Takes out the one that has this place.
    pub(super) fn take_out(&self, place: PlaceId) -> Option<Box<Admitted>> {
        let mut waiting = self.lock();
        let Waiting {
            known, strangers, ..
        } = &mut *waiting;
        // The oldest of many is the one that mostly loses it.
        let found = [strangers, known].into_iter().find_map(|line| {
            let at = line.iter().position(|one| one.place.id() == place)?;
            line.remove(at)
        });
        self.show(&waiting);
        found
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// Drops all, and those to come.
    pub(super) fn close(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        let gone = (
            std::mem::take(&mut waiting.known),
            std::mem::take(&mut waiting.strangers),
        );
        self.show(&waiting);
        drop(waiting);
        drop(gone);
    }

    /// Shows whether there are any.
    fn show(&self, waiting: &Waiting) {
        let none = waiting.known.is_empty() && waiting.strangers.is_empty();
        self.any.store(!none, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Whole after any panic: each change is one step.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
