use std::time::Duration;

use nvme_proto::host::Duty;
use nvme_proto::wire::Cqe;

use crate::buffer::Buffer;
use crate::error::{HostError, Loss};

/// Handle of a command, valid for one result. Calls with a void ticket panic.
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

    /// QID (admin queue: 0).
    #[must_use]
    pub fn qid(&self) -> u16 {
        self.qid
    }

    /// CID, unique until the result is taken. Less than the queue's depth, so it can index a table.
    #[must_use]
    pub fn cid(&self) -> u16 {
        self.cid
    }
}

/// Controller's response to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// CQE of the response capsule.
    pub cqe: Cqe,
    /// Remote key invalidated by the response, if any.
    pub invalidated_rkey: Option<u32>,
}

impl Response {
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

/// Ended command. The controller no longer accesses the buffer.
#[derive(Debug)]
#[must_use]
pub struct Ended {
    /// Response, or the error of a command without response.
    pub answer: Result<Response, HostError>,
    /// Buffer that the command used; `None` without one.
    pub buffer: Option<Buffer>,
}

impl Ended {
    /// Returns the buffer if the command was successful, or drops it.
    ///
    /// # Panics
    /// If the command had no buffer.
    pub fn into_buffer(self) -> Result<Buffer, HostError> {
        self.answer?.require_success(|| "the command".to_owned())?;
        Ok(self.buffer.expect("the command had a buffer"))
    }
}

/// Error of a submission, with the command's buffer.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Unsent {
    /// Why the command was not submitted.
    pub error: HostError,
    /// Buffer that the command used; `None` without one.
    pub buffer: Option<Buffer>,
}

impl From<Unsent> for HostError {
    fn from(unsent: Unsent) -> Self {
        unsent.error
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Owner {
    #[default]
    Caller,
    Duty(Duty),
    Guard,
    Abandoned,
}

#[derive(Debug, Default)]
pub(super) enum Phase {
    #[default]
    Free,
    /// The command was sent. `response` is set if it is answered, but waits for SENDs to complete.
    Outstanding {
        response: Option<Response>,
    },
    Parked,
    Done(Result<Response, Loss>),
}

#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) generation: u32,
    pub(super) phase: Phase,
    pub(super) owner: Owner,
    pub(super) held: Option<Buffer>,
    pub(super) place: Option<u16>,
    pub(super) capsule_bytes: u32,
    pub(super) requeue: bool,
    pub(super) retries: u8,
    pub(super) not_before: Duration,
    pub(super) timed: bool,
    pub(super) aborted: bool,
    /// Number of sweeps since the command or its abort was sent.
    pub(super) age: u8,
    pub(super) older: Option<u16>,
    pub(super) newer: Option<u16>,
}

impl Slot {
    pub(super) fn place(&self) -> u16 {
        self.place
            .expect("a command that is not done has a capsule")
    }

    pub(super) fn unanswered(&self) -> bool {
        matches!(self.phase, Phase::Outstanding { response: None })
    }
}
