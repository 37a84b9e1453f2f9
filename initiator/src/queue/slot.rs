//! A slot for one command, and the ticket of its caller.

use std::sync::Arc;
use std::time::Duration;

use cairn_rdma::Region;
use nvme_proto::host::Duty;
use nvme_proto::wire::Cqe;

use crate::error::Loss;

/// A submitted command. Good for one answer.
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

    /// The queue the command went to.
    #[must_use]
    pub fn qid(&self) -> u16 {
        self.qid
    }

    /// The command's identifier, as Abort requires it. Less than the queue's depth,
    /// and of no other command of the queue until this one's answer is taken: good
    /// for indexing a table of one's own.
    #[must_use]
    pub fn cid(&self) -> u16 {
        self.cid
    }
}

/// The answer to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// The completion queue entry.
    pub cqe: Cqe,
    /// The key of this host that the response took out of use.
    pub invalidated_rkey: Option<u32>,
}

/// Whose command it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Owner {
    /// A ticket's.
    #[default]
    Caller,
    /// The association's.
    Duty(Duty),
    /// The controller's own, which identifies a namespace.
    Guard,
    /// Its owner has given up; the response frees it.
    Abandoned,
}

#[derive(Debug, Default)]
pub(super) enum Phase {
    #[default]
    Free,
    /// Answered and still here while too many capsules have outlived their
    /// commands.
    Outstanding {
        response: Option<Response>,
    },
    /// Waits for a connection to be sent, or sent again, on.
    Parked,
    Done(Result<Response, Loss>),
}

#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) generation: u32,
    pub(super) phase: Phase,
    pub(super) owner: Owner,
    /// Keeps the data registered while the controller may reach for it.
    pub(super) held: Option<Arc<Region>>,
    /// Where its capsule lies, from its preparation to its end.
    pub(super) place: Option<u16>,
    pub(super) capsule_bytes: u32,
    /// May be sent again if its connection breaks.
    pub(super) requeue: bool,
    /// How often it may be sent again after an answer.
    pub(super) retries: u8,
    /// Earliest time of its next SEND.
    pub(super) not_before: Duration,
    /// Has a time limit.
    pub(super) timed: bool,
    /// Has been aborted for taking too long.
    pub(super) aborted: bool,
    /// Sweeps that found it unanswered.
    pub(super) age: u8,
    /// Neighbours among those that are done.
    pub(super) older: Option<u16>,
    pub(super) newer: Option<u16>,
}

impl Slot {
    /// Where the capsule of a command lies that is not done.
    pub(super) fn place(&self) -> u16 {
        self.place
            .expect("a command that is not done has a capsule")
    }

    pub(super) fn unanswered(&self) -> bool {
        matches!(self.phase, Phase::Outstanding { response: None })
    }
}
