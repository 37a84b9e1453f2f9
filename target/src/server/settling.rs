//! Waits until the disks have ended all commands that began before a change.
//!
//! Each wait has a deadline, because a hung disk never ends its commands.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::Clock;
use tokio::sync::mpsc::UnboundedSender;

use cairn_data_path::registry::{ControlMessage, Mailbox, Message, Scope, Settling};

/// Maximum wait for commands begun before a change.
pub(super) const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Continuation of a change, called with the owner of the [`Waits`]. The flag is false after a
/// failure or the deadline.
pub(super) type Then<O> = Box<dyn FnOnce(&mut O, bool) + Send>;

struct Wait<O> {
    id: u64,
    deadline: Instant,
    then: Then<O>,
}

pub(super) struct Waits<O> {
    next_id: u64,
    waiting: Vec<Wait<O>>,
    clock: Clock,
    reactors: Arc<[Mailbox]>,
    control: UnboundedSender<ControlMessage>,
}

impl<O> Waits<O> {
    pub(super) fn new(
        clock: Clock,
        reactors: Arc<[Mailbox]>,
        control: UnboundedSender<ControlMessage>,
    ) -> Self {
        Self {
            next_id: 0,
            waiting: Vec::new(),
            clock,
            reactors,
            control,
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|wait| wait.deadline).min()
    }

    pub(super) fn has(&self, id: u64) -> bool {
        self.waiting.iter().any(|wait| wait.id == id)
    }

    /// Registers a continuation, and returns the wait's ID. [`Self::end`] returns the continuation;
    /// after [`SETTLE_TIMEOUT`], [`Self::late`] does.
    pub(super) fn begin(&mut self, then: impl FnOnce(&mut O, bool) + Send + 'static) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.waiting.push(Wait {
            id,
            deadline: self.clock.now() + SETTLE_TIMEOUT,
            then: Box::new(then),
        });
        id
    }

    /// Registers `then` to run once no disk has a command of `scope` from before the change, or
    /// after [`SETTLE_TIMEOUT`]. The change must already be in force or in the mailboxes.
    pub(super) fn settle(
        &mut self,
        scope: Scope,
        then: impl FnOnce(&mut O, bool) + Send + 'static,
    ) {
        let id = self.begin(then);
        let (count, control) = (self.reactors.len(), self.control.clone());
        let settling = Arc::new(Settling::new(id, scope, count, control));
        for reactor in self.reactors.iter() {
            let settling = Arc::clone(&settling);
            reactor.send(Message::Settle { settling });
        }
    }

    pub(super) fn end(&mut self, id: u64) -> Option<Then<O>> {
        let at = self.waiting.iter().position(|wait| wait.id == id)?;
        Some(self.waiting.swap_remove(at).then)
    }

    pub(super) fn late(&mut self) -> Vec<Then<O>> {
        let now = self.clock.now();
        let late = self.waiting.extract_if(.., |wait| wait.deadline <= now);
        late.map(|wait| wait.then).collect()
    }
}
