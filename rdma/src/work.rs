//! Work requests and completions with the semantics of verbs, without raw pointers.

use core::fmt;

use cairn_base::slab::Key;

/// Maximum scatter/gather elements of a work request. A command capsule needs two: SQE and
/// in-capsule data.
pub const MAX_SGE: usize = 2;

/// Identifier of a queue pair at one endpoint.
///
/// The low 16 bits are the slot. The high 16 bits are a generation counter, so that a stale id
/// matches no later queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QpId(u32);

impl QpId {
    /// Creates the id of a slot in a generation.
    #[must_use]
    pub const fn new(slot: u16, generation: u16) -> Self {
        Self(((generation as u32) << 16) | slot as u32)
    }

    /// Returns the slot. Slots are numbered from 0 without gaps.
    #[must_use]
    pub const fn slot(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    /// Returns the number of earlier queue pairs in the slot, modulo 2^16.
    #[must_use]
    pub const fn generation(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

impl From<Key<u16>> for QpId {
    #[inline]
    fn from(key: Key<u16>) -> Self {
        Self::new(key.index as u16, key.generation)
    }
}

impl From<QpId> for Key<u16> {
    #[inline]
    fn from(id: QpId) -> Self {
        Self {
            index: id.slot() as u32,
            generation: id.generation(),
        }
    }
}

impl fmt::Display for QpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot(), self.generation())
    }
}

/// Range of registered local memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sge {
    /// Virtual address of the first byte.
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// Local key of the region that contains the range.
    pub lkey: u32,
}

/// Up to [`MAX_SGE`] memory ranges, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SgeList {
    list: [Sge; MAX_SGE],
    count: u8,
}

impl SgeList {
    /// List for messages of length 0.
    pub const EMPTY: Self = Self {
        list: [Sge {
            addr: 0,
            length: 0,
            lkey: 0,
        }; MAX_SGE],
        count: 0,
    };

    /// Creates a list of one range.
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

    /// Creates a list of two ranges.
    #[must_use]
    pub const fn two(first: Sge, second: Sge) -> Self {
        Self {
            list: [first, second],
            count: 2,
        }
    }

    /// Returns the ranges in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Sge] {
        &self.list[..usize::from(self.count)]
    }

    /// Returns the total length in bytes.
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

/// Memory registered at one end, for RDMA from the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteBuffer {
    /// Virtual address where the memory is registered.
    pub addr: u64,
    /// Remote key of the region.
    pub rkey: u32,
}

/// Operation of a send-queue work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// SEND, which fills a receive posted by the peer.
    Send,
    /// SEND that also invalidates a remote key of the peer.
    SendWithInvalidate {
        /// Remote key to invalidate.
        rkey: u32,
    },
    /// RDMA WRITE, which copies local bytes to the peer's memory.
    Write(RemoteBuffer),
    /// RDMA READ, which copies the peer's memory to local bytes.
    Read(RemoteBuffer),
}

/// Send-queue work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendWork {
    /// Identifier returned in the [`Completion`].
    pub id: u64,
    /// Operation to perform.
    pub op: Operation,
    /// Local memory: the source, or the destination of an RDMA READ.
    pub sges: SgeList,
    /// True if success produces a completion. Failure always does.
    pub signaled: bool,
}

/// Receive for the queue pairs of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecvWork {
    /// Identifier returned in the [`Completion`], unique among the endpoint's receives.
    pub id: u64,
    /// Destination of an incoming SEND.
    pub sges: SgeList,
}

/// Kind of the completed work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionKind {
    /// `Send` or `SendWithInvalidate`. Success: the message arrived at the peer.
    Send,
    /// `Write`. Success: the peer acknowledged all bytes.
    Write,
    /// `Read`. Success: the bytes are in local memory.
    Read,
    /// Receive. Success: a SEND of the peer filled the buffer.
    Recv,
    /// Placeholder in unused entries such as [`Completion::EMPTY`]; never reported.
    Unknown,
}

/// Status of completed work, named as in verbs (`ibv_wc_status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkStatus {
    /// The work is done.
    Success,
    /// A receive is shorter than the incoming SEND, or a message is too long.
    LocalLength,
    /// The queue pair is in an inconsistent state.
    LocalQpOperation,
    /// A local buffer is outside its region, or the region lacks the access right.
    LocalProtection,
    /// The queue pair broke or closed before the work was done.
    Flushed,
    /// The response of the peer is invalid.
    BadResponse,
    /// This end refused an access by the peer.
    LocalAccess,
    /// The peer answered NAK Invalid Request, such as for an unexpected opcode or length.
    RemoteInvalidRequest,
    /// The peer refused the key, range or access right.
    RemoteAccess,
    /// The peer failed to execute the request.
    RemoteOperation,
    /// No acknowledgement arrived within the transport retries: the peer or the path failed.
    RetryExceeded,
    /// The peer had no receive posted within the RNR retries.
    RnrRetryExceeded,
    /// Any other code of the provider.
    Other(u32),
}

impl WorkStatus {
    /// True for [`WorkStatus::Success`].
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Self::Success
    }

    /// Returns the number of the status in libibverbs (`ibv_wc_status`).
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

    /// Returns the status with number `code`.
    #[must_use]
    pub fn of_code(code: u32) -> Self {
        let known = KNOWN.iter().find(|(known, _)| *known == code);
        known.map_or(Self::Other(code), |(_, status)| *status)
    }
}

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

/// Polled result of a work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Identifier of the work request.
    pub id: u64,
    /// Queue pair of the work request.
    pub qp: QpId,
    /// Receive, or operation of a send-queue request.
    pub kind: CompletionKind,
    /// Success, or cause of the failure.
    pub status: WorkStatus,
    /// Bytes received, valid for a successful `Recv` or `Read`.
    pub byte_len: u32,
    /// Remote key of a local region that the peer's SEND with Invalidate has invalidated.
    pub invalidated_rkey: Option<u32>,
}

impl Completion {
    /// Placeholder for entries of a slice that `Endpoint::poll` fills.
    pub const EMPTY: Self = Self {
        id: 0,
        qp: QpId::new(0, 0),
        kind: CompletionKind::Unknown,
        status: WorkStatus::Success,
        byte_len: 0,
        invalidated_rkey: None,
    };
}

/// Reason why a chain was not posted; no request of the chain completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// Too many outstanding requests. The caller must prevent this error.
    #[error("the send queue is full")]
    Full,
    /// The queue pair is broken or closed. An event reports the reason.
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
