//! Settling: a change is complete once no disk executes a command that began before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc::UnboundedSender;

use super::{ControlMessage, ControllerShared};
use crate::reservations::Restriction;

#[derive(Debug)]
pub enum Scope {
    Namespaces(Vec<u64>),
    Controller(Arc<ControllerShared>),
    /// Commands that the new reservation forbids or aborts.
    Reservation(Restriction),
}

/// Counts reactors that must answer; the last answer notifies the control plane.
#[derive(Debug)]
pub struct Settling {
    pub(crate) scope: Scope,
    id: u64,
    unanswered: AtomicUsize,
    control: UnboundedSender<ControlMessage>,
}

impl Settling {
    pub fn new(
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

    pub(crate) fn answer(&self) {
        if self.unanswered.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Sending fails only after the control plane has ended.
            let _ = self.control.send(ControlMessage::Settled { id: self.id });
        }
    }
}
