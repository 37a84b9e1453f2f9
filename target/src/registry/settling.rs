//! Change that takes effect once no reactor has commands from before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc::UnboundedSender;

use super::{ControlMessage, ControllerShared};

#[derive(Debug)]
pub(crate) enum Scope {
    /// Namespaces, as [`crate::namespace::Namespace::id`].
    Namespaces(Vec<u64>),
    Controller(Arc<ControllerShared>),
}

/// The last answer of a reactor notifies the control plane.
#[derive(Debug)]
pub(crate) struct Settling {
    pub(crate) scope: Scope,
    id: u64,
    unanswered: AtomicUsize,
    control: UnboundedSender<ControlMessage>,
}

impl Settling {
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

    /// A reactor has no more commands from before the change.
    pub(crate) fn answer(&self) {
        if self.unanswered.fetch_sub(1, Ordering::AcqRel) == 1 {
            // No receiver: the control plane has ended.
            let _ = self.control.send(ControlMessage::Settled { id: self.id });
        }
    }
}
