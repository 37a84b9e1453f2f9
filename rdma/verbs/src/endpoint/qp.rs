use std::net::SocketAddr;
use std::time::Instant;

use cairn_rdma::{Operation, PKey, PrivateData, QpId, QpOptions, SendWork};

use crate::chain::SendChain;
use crate::cm::Id;
use crate::objects::{QueuePair, Refusal};
use crate::send_ring::{SendEntry, SendRing};

pub(super) struct Qp {
    /// `None` until a connecting end has resolved its device, and after destruction. The field
    /// order destroys the pair before `cm`.
    pub(super) pair: Option<Pair>,
    pub(super) cm: Id,
    pub(super) phase: Phase,
    pub(super) down: bool,
    /// True if the device reported an error of the queue pair. Some drivers then do not report the
    /// end of its receives.
    pub(super) failed: bool,
    /// Value of `Staged::rounds` at which all receives of the queue pair have been polled.
    pub(super) receives_end: Option<u64>,
}

/// Queue pair with its outstanding work. The device may use the work's buffers until completion or
/// destruction.
pub(super) struct Pair {
    queue: QueuePair,
    ring: SendRing,
}

pub(super) enum Phase {
    Connecting(Box<Attempt>),
    Accepted,
    Established,
    /// State after a local close. Outstanding work may complete until the deadline.
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
    pub(super) fn new(cm: Id, phase: Phase) -> Self {
        Self {
            pair: None,
            cm,
            phase,
            down: false,
            failed: false,
            receives_end: None,
        }
    }

    pub(super) fn outstanding(&self) -> u32 {
        self.pair.as_ref().map_or(0, |pair| pair.ring.outstanding())
    }
}

impl Pair {
    pub(super) fn new(queue: QueuePair, send_work: u32) -> Self {
        Self {
            queue,
            ring: SendRing::new(send_work),
        }
    }

    pub(super) fn queue(&self) -> &QueuePair {
        &self.queue
    }

    pub(super) fn queue_mut(&mut self) -> &mut QueuePair {
        &mut self.queue
    }

    pub(super) fn room(&self) -> u32 {
        self.ring.room()
    }

    pub(super) fn push(&mut self, work: &SendWork) -> u32 {
        self.ring.push(work)
    }

    pub(super) fn unpush(&mut self, count: u32) {
        self.ring.unpush(count);
    }

    /// Returns the sequence number of the end mark: the SEND whose flush shows that all earlier
    /// work has ended.
    pub(super) fn mark(&self) -> u32 {
        self.ring.next()
    }

    pub(super) fn complete(&mut self, sequence: u32) -> Option<SendEntry> {
        self.ring.complete(sequence)
    }

    /// Removes and returns the oldest outstanding work, after completion of the end mark.
    pub(super) fn ended_by_mark(&mut self) -> Option<SendEntry> {
        self.ring.complete_oldest()
    }

    pub(super) fn destroy(self) -> impl Iterator<Item = SendEntry> {
        let Self { queue, mut ring } = self;
        drop(queue);
        std::iter::from_fn(move || ring.complete_oldest())
    }

    pub(super) fn may_inline(&self, work: &SendWork) -> bool {
        let send = matches!(
            work.op,
            Operation::Send | Operation::SendWithInvalidate { .. }
        );
        send && work.sges.total_len() <= self.queue.max_inline().into()
    }

    /// # Safety
    /// As [`QueuePair::post`].
    pub(super) unsafe fn post(&mut self, chain: &mut SendChain) -> Result<(), Refusal> {
        // SAFETY: the caller guarantees the bytes of inline work.
        unsafe { self.queue.post(chain) }
    }
}

pub(super) fn tag(id: QpId) -> u64 {
    u64::from(id.generation()) << 16 | id.slot() as u64
}

pub(super) fn from_tag(tag: u64) -> QpId {
    QpId::new(tag as u16, (tag >> 16) as u16)
}
