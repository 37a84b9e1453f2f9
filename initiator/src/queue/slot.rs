//! Slot of a command, and the caller's ticket.

use std::time::Duration;

use nvme_proto::host::Duty;
use nvme_proto::wire::Cqe;

use crate::buffer::Buffer;
use crate::error::{HostError, Loss};

/// Handle of a submitted command, valid for one result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    pub(super) qid: u16,
    pub(super) cid: u16,
    pub(super) generation: u32,
}

impl Ticket {
    #[cfg(test)]
    pub(crate) const fn of_tests(qid: u16, cid: u16) -> Self {
        Self {
            qid,
            cid,
            generation: 1,
        }
    }

    /// Queue of the command.
    #[must_use]
    pub fn qid(&self) -> u16 {
        self.qid
    }

    /// CID of the command, as required by Abort. Below the queue's depth and unique until the
    /// result is taken, so usable as index of the caller's table.
    #[must_use]
    pub fn cid(&self) -> u16 {
        self.cid
    }
}

/// Response to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// Completion queue entry.
    pub cqe: Cqe,
    /// Key of this host that the response invalidated.
    pub invalidated_rkey: Option<u32>,
}

impl Response {
    /// Turns any status except success into an error that names `command`.
    pub(crate) fn require_success(
        self,
        command: impl FnOnce() -> String,
    ) -> Result<Self, HostError> {
        let status = self.cqe.status();
        if status.is_success() {
            return Ok(self);
        }
        Err(HostError::Status {
            command: command(),
            status,
            result: self.cqe.result(),
        })
    }
}

/// End of a command: nothing will execute it or access its buffer.
#[derive(Debug)]
#[must_use]
pub struct Ended {
    /// Response, or the error of a command without one.
    pub answer: Result<Response, HostError>,
    /// Buffer of the command, given back.
    pub buffer: Option<Buffer>,
}

impl Ended {
    /// Buffer of a command that had one and succeeded.
    ///
    /// # Errors
    /// The error of a command without a response, or the status.
    ///
    /// # Panics
    /// If the command had no buffer.
    pub fn into_buffer(self) -> Result<Buffer, HostError> {
        self.answer?.require_success(|| "the command".to_owned())?;
        Ok(self.buffer.expect("the command had a buffer"))
    }
}

/// Command that was not submitted, with its buffer.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Unsent {
    /// Reason.
    pub error: HostError,
    /// Buffer of the command, given back.
    pub buffer: Option<Buffer>,
}

impl From<Unsent> for HostError {
    fn from(unsent: Unsent) -> Self {
        unsent.error
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Owner {
    /// Holder of a ticket.
    #[default]
    Caller,
    /// The association.
    Duty(Duty),
    /// The controller's guard, for identification of namespaces.
    Guard,
    /// No owner: it abandoned the command, and the response frees the slot.
    Abandoned,
}

#[derive(Debug, Default)]
pub(super) enum Phase {
    #[default]
    Free,
    /// The command was sent. It may have a response already, while too many capsules wait for their
    /// SENDs.
    Outstanding {
        response: Option<Response>,
    },
    /// The command waits for a connection, to be sent for the first time or again.
    Parked,
    Done(Result<Response, Loss>),
}

#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) generation: u32,
    pub(super) phase: Phase,
    pub(super) owner: Owner,
    /// Data that the controller may access, until the command has ended and its result is taken.
    pub(super) held: Option<Buffer>,
    /// Capsule slot, from the preparation of the command to its end.
    pub(super) place: Option<u16>,
    pub(super) capsule_bytes: u32,
    /// True if the command may be sent again after its connection breaks.
    pub(super) requeue: bool,
    /// Remaining retries after failures.
    pub(super) retries: u8,
    /// Earliest time of the command's next SEND.
    pub(super) not_before: Duration,
    /// True if the command has a time limit.
    pub(super) timed: bool,
    /// True if an abort of the command was requested.
    pub(super) aborted: bool,
    /// Number of age checks without a response.
    pub(super) age: u8,
    /// Links in the list of completed commands.
    pub(super) older: Option<u16>,
    pub(super) newer: Option<u16>,
}

impl Slot {
    /// Returns the capsule slot of a command that has not ended.
    pub(super) fn place(&self) -> u16 {
        self.place
            .expect("a command that is not done has a capsule")
    }

    pub(super) fn unanswered(&self) -> bool {
        matches!(self.phase, Phase::Outstanding { response: None })
    }
}
