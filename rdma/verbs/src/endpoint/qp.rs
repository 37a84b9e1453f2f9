//! One queue pair and its connection.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use cairn_rdma::{Operation, PKey, PrivateData, QpId, QpOptions, SendWork};

use crate::chain::SendChain;
use crate::cm::Id;
use crate::objects::QueuePair;
use crate::send_ring::SendRing;

/// A queue pair and its connection.
pub(super) struct Qp {
    /// None until a connecting end has resolved its device. Dropped before the identifier.
    pub(super) pair: Option<QueuePair>,
    pub(super) cm: Id,
    pub(super) ring: SendRing,
    pub(super) phase: Phase,
    /// Whether `Disconnected` was reported.
    pub(super) down: bool,
    /// Once the device takes no more receives for this queue pair: the round of
    /// polling after which those it took have all been seen.
    pub(super) receives_end: Option<u64>,
}

/// The state of a queue pair.
pub(super) enum Phase {
    /// Our request is under way.
    Connecting(Box<Attempt>),
    /// We accepted; the peer has not confirmed it.
    Accepted,
    /// Both ends are connected.
    Established,
    /// We closed it: outstanding work drains until the deadline at most.
    Closing { deadline: Instant },
}

/// A connection that we request.
pub(super) struct Attempt {
    pub(super) remote: SocketAddr,
    pub(super) pkey: PKey,
    pub(super) options: QpOptions,
    pub(super) private_data: PrivateData,
    pub(super) deadline: Instant,
}

impl Phase {
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Connecting(attempt) => Some(attempt.deadline),
            Self::Closing { deadline } => Some(*deadline),
            Self::Accepted | Self::Established => None,
        }
    }
}

impl Qp {
    pub(super) fn new(cm: Id, phase: Phase, send_work: u32) -> Self {
        Self {
            pair: None,
            cm,
            ring: SendRing::new(send_work),
            phase,
            down: false,
            receives_end: None,
        }
    }

    /// Whether the device would take the bytes of `work` along with the request.
    pub(super) fn may_inline(&self, work: &SendWork) -> bool {
        let send = matches!(
            work.op,
            Operation::Send | Operation::SendWithInvalidate { .. }
        );
        let limit = self.pair.as_ref().map_or(0, QueuePair::max_inline);
        send && work.sges.total_len() <= limit.into()
    }

    /// Posts a chain. On failure, how many of it were taken all the same, and why.
    ///
    /// # Safety
    /// As for [`QueuePair::post`].
    pub(super) unsafe fn post(&mut self, chain: &mut SendChain) -> Result<(), (usize, io::Error)> {
        match &mut self.pair {
            // SAFETY: the caller vouches for inline work.
            Some(pair) => unsafe { pair.post(chain) },
            None => Err((0, io::Error::from_raw_os_error(libc::EINVAL))),
        }
    }
}

/// An identifier's tag for a queue pair, and back.
pub(super) fn tag(id: QpId) -> u64 {
    u64::from(id.generation()) << 16 | id.slot() as u64
}

pub(super) fn from_tag(tag: u64) -> QpId {
    QpId::new(tag as u16, (tag >> 16) as u16)
}
