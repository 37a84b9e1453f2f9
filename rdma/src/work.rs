//! Work requests and their completions: verbs' nouns, without verbs' pointers.

use core::fmt;

/// The most scatter/gather elements a work request has. Two: a submission
/// queue entry and the data that travels with it.
pub const MAX_SGE: usize = 2;

/// A queue pair of one endpoint. Never reused while an old one could still be
/// meant: the high half counts generations, the low half is the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QpId(u32);

impl QpId {
    /// The queue pair in `slot`, in its `generation`.
    #[must_use]
    pub const fn new(slot: u16, generation: u16) -> Self {
        Self(((generation as u32) << 16) | slot as u32)
    }

    /// The slot, dense from 0: good for indexing a table.
    #[must_use]
    pub const fn slot(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    /// How many queue pairs lived in the slot before this one, modulo 2^16.
    #[must_use]
    pub const fn generation(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

impl fmt::Display for QpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot(), self.generation())
    }
}

/// A stretch of registered local memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sge {
    /// Virtual address of the first byte.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// The local key of the region it lies in.
    pub lkey: u32,
}

/// Up to [`MAX_SGE`] stretches, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SgeList {
    list: [Sge; MAX_SGE],
    count: u8,
}

impl SgeList {
    /// No bytes at all.
    pub const EMPTY: Self = Self {
        list: [Sge {
            addr: 0,
            length: 0,
            lkey: 0,
        }; MAX_SGE],
        count: 0,
    };

    /// One stretch.
    #[must_use]
    pub const fn one(sge: Sge) -> Self {
        Self {
            list: [
                sge,
                Sge {
                    addr: 0,
                    length: 0,
                    lkey: 0,
                },
            ],
            count: 1,
        }
    }

    /// Two stretches.
    #[must_use]
    pub const fn two(first: Sge, second: Sge) -> Self {
        Self {
            list: [first, second],
            count: 2,
        }
    }

    /// The stretches.
    #[must_use]
    pub fn as_slice(&self) -> &[Sge] {
        &self.list[..usize::from(self.count)]
    }

    /// Bytes in all.
    #[must_use]
    pub fn total_len(&self) -> u64 {
        self.as_slice()
            .iter()
            .map(|sge| u64::from(sge.length))
            .sum()
    }
}

impl From<Sge> for SgeList {
    fn from(sge: Sge) -> Self {
        Self::one(sge)
    }
}

/// Memory of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteBuffer {
    /// Virtual address at the peer.
    pub addr: u64,
    /// The peer's remote key.
    pub rkey: u32,
}

/// What a send-queue work request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Lands in a receive that the peer posted.
    Send,
    /// As `Send`, and takes the peer's key out of use when it lands.
    SendWithInvalidate {
        /// The peer's key.
        rkey: u32,
    },
    /// Local bytes to the peer's memory, unseen by the peer's CPU.
    Write(RemoteBuffer),
    /// The peer's memory to local bytes.
    Read(RemoteBuffer),
}

/// One send-queue work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendWork {
    /// Comes back in the [`Completion`].
    pub id: u64,
    /// What to do.
    pub op: Operation,
    /// With which local bytes.
    pub sges: SgeList,
    /// Whether success is reported. Failure always is.
    pub signaled: bool,
}

/// One receive for the endpoint's shared receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecvWork {
    /// Comes back in the [`Completion`].
    pub id: u64,
    /// Where an incoming SEND lands.
    pub sges: SgeList,
}

/// What a completion is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionKind {
    /// A `Send` or `SendWithInvalidate` arrived at the peer.
    Send,
    /// A `Write` is done.
    Write,
    /// A `Read` is done: the bytes are here.
    Read,
    /// A SEND of the peer landed.
    Recv,
    /// The work failed before anyone could say what it was (flushed work on
    /// some devices): go by the id.
    Unknown,
}

/// How work ended, in verbs' words (`ibv_wc_status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkStatus {
    /// Done.
    Success,
    /// A receive was shorter than what arrived, or a message too long.
    LocalLength,
    /// Something is wrong with the queue pair itself.
    LocalQpOperation,
    /// A local buffer is outside its region, or the region lacks the right.
    LocalProtection,
    /// The queue pair broke before this work's turn came.
    Flushed,
    /// The peer's answer made no sense.
    BadResponse,
    /// This end refused the peer's access.
    LocalAccess,
    /// The peer called the request invalid.
    RemoteInvalidRequest,
    /// The peer refused the key, range or right.
    RemoteAccess,
    /// The peer failed to carry the request out.
    RemoteOperation,
    /// No acknowledgement within the retry budget: the peer or the path is gone.
    RetryExceeded,
    /// The peer had no receive posted within the retry budget.
    RnrRetryExceeded,
    /// Any other code, as the provider gave it.
    Other(u32),
}

impl WorkStatus {
    /// Whether the work is done.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Self::Success
    }

    /// Its number in libibverbs (`ibv_wc_status`), by which it is known to other
    /// programs, and to the table that explains it.
    #[must_use]
    pub fn code(self) -> u32 {
        match self {
            Self::Other(code) => code,
            known => KNOWN
                .iter()
                .find(|(_, status)| *status == known)
                .map(|(code, _)| *code)
                .expect("each status but Other is in the table"),
        }
    }

    /// The status of that number.
    #[must_use]
    pub fn of_code(code: u32) -> Self {
        let known = KNOWN.iter().find(|(known, _)| *known == code);
        known.map_or(Self::Other(code), |(_, status)| *status)
    }
}

/// libibverbs' numbers of the statuses that a reliable connection's work ends in.
const KNOWN: [(u32, WorkStatus); 12] = [
    (0, WorkStatus::Success),
    (1, WorkStatus::LocalLength),
    (2, WorkStatus::LocalQpOperation),
    (4, WorkStatus::LocalProtection),
    (5, WorkStatus::Flushed),
    (7, WorkStatus::BadResponse),
    (8, WorkStatus::LocalAccess),
    (9, WorkStatus::RemoteInvalidRequest),
    (10, WorkStatus::RemoteAccess),
    (11, WorkStatus::RemoteOperation),
    (12, WorkStatus::RetryExceeded),
    (13, WorkStatus::RnrRetryExceeded),
];

/// A work request has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The work's id.
    pub id: u64,
    /// The queue pair it ran on.
    pub qp: QpId,
    /// What it was.
    pub kind: CompletionKind,
    /// How it ended.
    pub status: WorkStatus,
    /// Bytes that landed (`Recv` and `Read`, on success).
    pub byte_len: u32,
    /// The remote key of ours that the peer's SEND took out of use.
    pub invalidated_rkey: Option<u32>,
}

impl Completion {
    /// What a slice is filled with before it is polled into.
    pub const EMPTY: Self = Self {
        id: 0,
        qp: QpId::new(0, 0),
        kind: CompletionKind::Unknown,
        status: WorkStatus::Success,
        byte_len: 0,
        invalidated_rkey: None,
    };
}

/// Why a chain of work was not posted. None of the chain will complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// More work than the queue pair's `send_work`
    /// would be outstanding: the caller's credits are wrong.
    #[error("the send queue is full")]
    Full,
    /// The queue pair is broken or closed; its event says why.
    #[error("the queue pair is broken")]
    Broken,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_and_their_numbers_go_both_ways() {
        for code in 0..=30 {
            assert_eq!(WorkStatus::of_code(code).code(), code);
        }
        assert_eq!(WorkStatus::RnrRetryExceeded.code(), 13);
        assert_eq!(WorkStatus::of_code(19), WorkStatus::Other(19));
    }
}
