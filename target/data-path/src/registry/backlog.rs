//! Admitted connections that wait for their reactor, which accepts a few at a time, known hosts
//! first.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Admitted, PlaceId};

#[derive(Debug, Default)]
pub(super) struct Backlog {
    waiting: Mutex<BacklogQueues>,
    /// Written under the lock, readable without it.
    any: AtomicBool,
}

#[derive(Debug, Default)]
struct BacklogQueues {
    known: VecDeque<Box<Admitted>>,
    strangers: VecDeque<Box<Admitted>>,
    closed: bool,
}

impl Backlog {
    /// A closed mailbox drops, and thereby rejects, the connection.
    pub(super) fn put(&self, admitted: Box<Admitted>) {
        let mut waiting = self.lock();
        if waiting.closed {
            drop(waiting);
            return drop(admitted);
        }
        let queue = if admitted.place.is_known() {
            &mut waiting.known
        } else {
            &mut waiting.strangers
        };
        queue.push_back(admitted);
        self.show(&waiting);
    }

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

    pub(super) fn take_out(&self, place: PlaceId) -> Option<Box<Admitted>> {
        let mut waiting = self.lock();
        let BacklogQueues {
            known, strangers, ..
        } = &mut *waiting;
        let found = [strangers, known].into_iter().find_map(|queue| {
            let at = queue.iter().position(|one| one.place.id() == place)?;
            queue.remove(at)
        });
        self.show(&waiting);
        found
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

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

    fn show(&self, waiting: &BacklogQueues) {
        let none = waiting.known.is_empty() && waiting.strangers.is_empty();
        self.any.store(!none, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, BacklogQueues> {
        // Poisoning is harmless: each change is one step.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
