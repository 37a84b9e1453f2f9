//! What an endpoint's queue pairs share: its completions and its receives.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use cairn_rdma::{Completion, CompletionKind, Operation, QpId, RecvWork, SendWork, WorkStatus};

/// What the completion of an operation is called.
const fn kind_of(operation: &Operation) -> CompletionKind {
    match operation {
        Operation::Send | Operation::SendWithInvalidate { .. } => CompletionKind::Send,
        Operation::Write(_) => CompletionKind::Write,
        Operation::Read(_) => CompletionKind::Read,
    }
}

/// One endpoint's completions.
#[derive(Debug)]
pub struct CompletionQueue {
    queue: VecDeque<Completion>,
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
    pub fn push(&mut self, completion: Completion) {
        assert!(
            self.queue.len() < self.limit,
            "completion queue overrun: {} do not fit",
            self.limit
        );
        self.unpolled[completion.qp.slot()] += 1;
        self.queue.push_back(completion);
    }

    /// Takes the oldest.
    pub fn pop(&mut self) -> Option<Completion> {
        let completion = self.queue.pop_front()?;
        self.unpolled[completion.qp.slot()] -= 1;
        Some(completion)
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

    pub(super) fn push_send(
        &mut self,
        qp: QpId,
        work: &SendWork,
        status: WorkStatus,
        byte_len: u32,
    ) {
        self.push(Completion {
            id: work.id,
            qp,
            kind: kind_of(&work.op),
            status,
            byte_len,
            invalidated_rkey: None,
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
