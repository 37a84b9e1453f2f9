//! A change that takes effect once every reactor has let go of the commands from before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc::UnboundedSender;

use super::{ControlMessage, ControllerShared};

/// The commands that a change concerns.
#[derive(Debug)]
pub(crate) enum Scope {
    /// All for these namespaces, by [`crate::namespace::Namespace::id`].
    Namespaces(Vec<u64>),
    /// All of this controller.
    Controller(Arc<ControllerShared>),
}

/// A change that each reactor receives in a message. Each answers once; the last answer reaches the control plane.
#[derive(Debug)]
pub(crate) struct Settling {
    /// The commands that it concerns.
    pub(crate) scope: Scope,
    id: u64,
    unanswered: AtomicUsize,
    control: UnboundedSender<ControlMessage>,
}

impl Settling {
    /// A change that this many reactors have to answer.
    pub(crate) fn new(
        id: u64,
        scope: Scope,
        reactors: usize,
        control: UnboundedSender<ControlMessage>,
    ) -> Self {
        Self {
            scope,
            id,
            unanswered: AtomicUsize::new(reactors),
            control,
        }
    }

    /// A reactor has nothing left from before the change.
    pub(crate) fn answer(&self) {
        if self.unanswered.fetch_sub(1, Ordering::AcqRel) == 1 {
            // A control plane that has ended waits for nothing.
            let _ = self.control.send(ControlMessage::Settled { id: self.id });
        }
    }
}
