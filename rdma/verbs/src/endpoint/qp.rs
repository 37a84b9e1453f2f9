use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use cairn_rdma::{Operation, PKey, PrivateData, QpId, QpOptions, SendWork};

use crate::chain::SendChain;
use crate::cm::Id;
use crate::objects::QueuePair;
use crate::send_ring::SendRing;

pub(super) struct Qp {
    /// Declared before `cm`, so that the pair is destroyed first. `None` until a connecting end has
    /// resolved its device.
    pub(super) pair: Option<QueuePair>,
    pub(super) cm: Id,
    pub(super) ring: SendRing,
    pub(super) phase: Phase,
    pub(super) down: bool,
    /// Value of `Staged::rounds` from which all receives of the queue pair have been polled. It is
    /// set when the device uses no more of them.
    pub(super) receives_end: Option<u64>,
}

pub(super) enum Phase {
    Connecting(Box<Attempt>),
    /// The REP is sent; the RTU has not arrived.
    Accepted,
    Established,
    /// This end has closed the connection; outstanding work drains until the deadline.
    Closing {
        deadline: Instant,
    },
}

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

    pub(super) fn may_inline(&self, work: &SendWork) -> bool {
        let send = matches!(
            work.op,
            Operation::Send | Operation::SendWithInvalidate { .. }
        );
        let limit = self.pair.as_ref().map_or(0, QueuePair::max_inline);
        send && work.sges.total_len() <= limit.into()
    }

    /// # Safety
    /// As [`QueuePair::post`].
    pub(super) unsafe fn post(&mut self, chain: &mut SendChain) -> Result<(), (usize, io::Error)> {
        match &mut self.pair {
            // SAFETY: the caller guarantees the bytes of inline work.
            Some(pair) => unsafe { pair.post(chain) },
            None => Err((0, io::Error::from_raw_os_error(libc::EINVAL))),
        }
    }
}

pub(super) fn tag(id: QpId) -> u64 {
    u64::from(id.generation()) << 16 | id.slot() as u64
}

pub(super) fn from_tag(tag: u64) -> QpId {
    QpId::new(tag as u16, (tag >> 16) as u16)
}
