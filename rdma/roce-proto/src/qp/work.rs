//! What is asked of a queue pair, and what it reports: verbs' work requests and
//! completions, with the immediate data and atomics that RC has.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use cairn_rdma::{
    Completion, CompletionKind, Operation, QpId, RecvWork, RemoteBuffer, SendWork, SgeList,
    WorkStatus,
};

/// What a work request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Lands in a receive of the peer.
    Send {
        /// The peer's key to take out of use. Never together with `immediate`.
        invalidate: Option<u32>,
        /// Four bytes for the peer's completion.
        immediate: Option<u32>,
    },
    /// Local bytes to the peer's memory.
    Write {
        /// Where to.
        remote: RemoteBuffer,
        /// Four bytes for a completion at the peer, which takes a receive.
        immediate: Option<u32>,
    },
    /// The peer's memory to local bytes.
    Read {
        /// Where from.
        remote: RemoteBuffer,
    },
    /// Replaces 8 bytes of the peer's memory if they are as expected.
    CompareSwap {
        /// Which.
        remote: RemoteBuffer,
        /// What they shall be.
        compare: u64,
        /// What to replace them by.
        swap: u64,
    },
    /// Adds to 8 bytes of the peer's memory.
    FetchAdd {
        /// Which.
        remote: RemoteBuffer,
        /// How much.
        add: u64,
    },
}

/// One work request for the send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// Comes back in the completion.
    pub id: u64,
    /// What to do.
    pub request: Request,
    /// With which local bytes.
    pub sges: SgeList,
    /// Whether success is reported. Failure always is.
    pub signaled: bool,
}

impl From<&SendWork> for Work {
    fn from(work: &SendWork) -> Self {
        let request = match work.op {
            Operation::Send => Request::Send {
                invalidate: None,
                immediate: None,
            },
            Operation::SendWithInvalidate { rkey } => Request::Send {
                invalidate: Some(rkey),
                immediate: None,
            },
            Operation::Write(remote) => Request::Write {
                remote,
                immediate: None,
            },
            Operation::Read(remote) => Request::Read { remote },
        };
        Self {
            id: work.id,
            request,
            sges: work.sges,
            signaled: work.signaled,
        }
    }
}

impl Request {
    /// Whether the peer answers with data.
    #[must_use]
    pub const fn fetches(&self) -> bool {
        matches!(
            self,
            Self::Read { .. } | Self::CompareSwap { .. } | Self::FetchAdd { .. }
        )
    }

    /// Whether it is an atomic.
    #[must_use]
    pub const fn is_atomic(&self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// What its completion is called. An atomic, like a READ, fetches.
    #[must_use]
    pub const fn kind(&self) -> CompletionKind {
        match self {
            Self::Send { .. } => CompletionKind::Send,
            Self::Write { .. } => CompletionKind::Write,
            _ => CompletionKind::Read,
        }
    }
}

/// A completion, with what the fabric model has no field for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// What the consumer gets.
    pub completion: Completion,
    /// Immediate data of the peer's message.
    pub immediate: Option<u32>,
}

/// One endpoint's completions.
#[derive(Debug)]
pub struct CompletionQueue {
    queue: VecDeque<Done>,
    limit: usize,
    /// By slot: completions that were made and not yet polled.
    unpolled: Vec<u32>,
}

impl CompletionQueue {
    /// For so many completions of so many queue pairs.
    #[must_use]
    pub fn new(limit: usize, slots: usize) -> Self {
        Self {
            queue: VecDeque::with_capacity(limit),
            limit,
            unpolled: vec![0; slots],
        }
    }

    /// Adds one.
    ///
    /// # Panics
    /// If there are as many as the owner said there would ever be: only a wrong
    /// sum of its own can cause that.
    pub fn push(&mut self, done: Done) {
        assert!(
            self.queue.len() < self.limit,
            "completion queue overrun: {} do not fit",
            self.limit
        );
        self.unpolled[done.completion.qp.slot()] += 1;
        self.queue.push_back(done);
    }

    /// Takes the oldest.
    pub fn pop(&mut self) -> Option<Done> {
        let done = self.queue.pop_front()?;
        self.unpolled[done.completion.qp.slot()] -= 1;
        Some(done)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether a queue pair has any that were not polled.
    #[must_use]
    pub fn has_of(&self, qp: QpId) -> bool {
        self.unpolled[qp.slot()] > 0
    }

    pub(super) fn push_send(&mut self, qp: QpId, work: &Work, status: WorkStatus, byte_len: u32) {
        self.push(Done {
            completion: Completion {
                id: work.id,
                qp,
                kind: work.request.kind(),
                status,
                byte_len,
                invalidated_rkey: None,
            },
            immediate: None,
        });
    }
}

/// One endpoint's shared receives. The one that was posted last is filled first: its
/// memory is in the cache, and however many there are, few are in use at a time. (A
/// shared receive queue promises its consumer no order: IBTA 10.2.9.)
#[derive(Debug)]
pub struct ReceiveQueue {
    stack: Vec<RecvWork>,
    limit: usize,
}

impl ReceiveQueue {
    /// For so many receives.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            stack: Vec::with_capacity(limit),
            limit,
        }
    }

    /// Adds receives, all or none. False: they do not fit.
    #[must_use]
    pub fn post(&mut self, works: &[RecvWork]) -> bool {
        let fits = self.stack.len() + works.len() <= self.limit;
        if fits {
            self.stack.extend(works);
        }
        fits
    }

    pub(super) fn take(&mut self) -> Option<RecvWork> {
        self.stack.pop()
    }
}
