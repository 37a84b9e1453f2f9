//! Reservations of a namespace: the state that hosts see, and the state that the reactors apply.
//!
//! Commands change the reservations one at a time. A change with PTPL (persist through power loss)
//! is first stored. Then all reactors apply the change. The command completes when no disk executes
//! a command that the change forbids.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cairn_base::panics;
use nvme_proto::reservation::{Change, HostId, Notice, Outcome, Reservations};
use nvme_proto::wire::Status;

/// Maximum waiting changes of one controller and namespace.
const WAITING_MAX: usize = 8;

pub struct Wish {
    /// Association of the command, for the limit of waiting changes.
    pub owner: u64,
    pub host: HostId,
    pub change: Change,
    /// Returns false if the association has ended; the change is then dropped.
    pub is_live: Box<dyn Fn() -> bool + Send>,
    pub done: Box<dyn FnOnce(Result<(), Status>) + Send>,
}

impl fmt::Debug for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wish({:?})", self.change)
    }
}

#[derive(Debug)]
struct Pending {
    next: Arc<Reservations>,
    outcome: Outcome,
    wish: Wish,
}

#[derive(Debug, Default)]
struct State {
    answered: Arc<Reservations>,
    in_force: Option<Arc<Reservations>>,
    busy: bool,
    pending: Option<Pending>,
    waiting: VecDeque<Wish>,
}

/// New reservations by which reactors check commands, and the hosts whose commands the change
/// aborts.
#[derive(Debug)]
pub struct Restriction {
    pub(crate) reserving: Arc<Reserving>,
    pub(crate) next: Option<Arc<Reservations>>,
    pub(crate) aborted: Vec<HostId>,
}

pub struct Ended {
    pub persist: bool,
    pub notices: Vec<(HostId, Notice)>,
    pub(crate) done: Box<dyn FnOnce(Result<(), Status>) + Send>,
}

#[derive(Debug, Default)]
pub struct Reserving {
    can_persist: bool,
    state: Mutex<State>,
    storing: Mutex<()>,
}

fn held(reservations: &Arc<Reservations>) -> Option<Arc<Reservations>> {
    reservations.rtype().map(|_| Arc::clone(reservations))
}

impl Reserving {
    pub fn new(can_persist: bool, stored: Reservations) -> Self {
        let answered = Arc::new(stored);
        Self {
            can_persist,
            state: Mutex::new(State {
                in_force: held(&answered),
                answered,
                ..State::default()
            }),
            storing: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        panics::intact(self.state.lock(), "the reservations of a namespace")
    }

    /// Permits the caller alone to store the state. A caller reads the state afterwards, so that no
    /// older state replaces a newer one in the file.
    pub fn storing(&self) -> MutexGuard<'_, ()> {
        // Poisoning is harmless.
        self.storing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn can_persist(&self) -> bool {
        self.can_persist
    }

    pub fn answered(&self) -> Arc<Reservations> {
        Arc::clone(&self.lock().answered)
    }

    /// `None` if no reservation is held.
    pub(crate) fn in_force(&self) -> Option<Arc<Reservations>> {
        self.lock().in_force.clone()
    }

    /// Begins, queues or refuses a change. Returns true if the control plane must now carry out a
    /// change.
    pub(crate) fn submit(&self, wish: Wish) -> bool {
        let mut state = self.lock();
        if !state.busy {
            state.busy = true;
            drop(state);
            return self.begin(wish) || self.go_on();
        }
        let of_owner = state.waiting.iter().filter(|one| one.owner == wish.owner);
        if of_owner.count() < WAITING_MAX {
            state.waiting.push_back(wish);
            return false;
        }
        drop(state);
        (wish.done)(Err(Status::COMMAND_INTERRUPTED));
        false
    }

    /// Starts queued changes until the control plane must carry one out; returns false if no change
    /// requires that.
    pub(crate) fn go_on(&self) -> bool {
        loop {
            let mut state = self.lock();
            let Some(wish) = state.waiting.pop_front() else {
                state.busy = false;
                return false;
            };
            drop(state);
            if self.begin(wish) {
                return true;
            }
        }
    }

    fn begin(&self, wish: Wish) -> bool {
        if !(wish.is_live)() {
            return false;
        }
        let mut state = self.lock();
        let executed = state
            .answered
            .execute(&wish.host, &wish.change, self.can_persist);
        match executed {
            Ok(mut outcome) if outcome.next != *state.answered || !outcome.aborted.is_empty() => {
                let next = Arc::new(std::mem::take(&mut outcome.next));
                state.pending = Some(Pending {
                    next,
                    outcome,
                    wish,
                });
                true
            }
            other => {
                drop(state);
                (wish.done)(other.map(drop));
                false
            }
        }
    }

    /// Drops all changes, after the subsystem's removal.
    pub fn abandon(&self) {
        let mut state = self.lock();
        let gone = (state.pending.take(), std::mem::take(&mut state.waiting));
        state.busy = false;
        drop(state);
        drop(gone);
    }

    /// Returns the state to store before the pending change takes effect; `None` if neither this
    /// nor the former state persists.
    pub fn to_store(&self) -> Option<Arc<Reservations>> {
        let state = self.lock();
        let next = &state.pending.as_ref()?.next;
        let persists = next.is_persistent() || state.answered.is_persistent();
        persists.then(|| Arc::clone(next))
    }

    /// Puts the pending change in force. Reactors read it when they receive the restriction.
    pub fn enforce(self: &Arc<Self>) -> Restriction {
        let mut state = self.lock();
        let pending = state.pending.as_ref();
        let (next, aborted) = match pending {
            Some(pending) => (held(&pending.next), pending.outcome.aborted.clone()),
            None => (held(&state.answered), Vec::new()),
        };
        state.in_force.clone_from(&next);
        Restriction {
            reserving: Arc::clone(self),
            next,
            aborted,
        }
    }

    /// Ends the pending change. If `settled`, reports show its state from now on.
    pub(crate) fn end(&self, settled: bool) -> Option<Ended> {
        let mut state = self.lock();
        let pending = state.pending.take()?;
        let mut notices = Vec::new();
        if settled {
            state.answered = pending.next;
            notices = pending.outcome.notices;
        }
        Some(Ended {
            persist: state.answered.is_persistent(),
            notices,
            done: pending.wish.done,
        })
    }
}
