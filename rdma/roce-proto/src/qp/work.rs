//! Completion queue and shared receive queue of an endpoint.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use cairn_rdma::{Completion, CompletionKind, Operation, QpId, RecvWork, SendWork, WorkStatus};

const fn kind_of(operation: &Operation) -> CompletionKind {
    match operation {
        Operation::Send | Operation::SendWithInvalidate { .. } => CompletionKind::Send,
        Operation::Write(_) => CompletionKind::Write,
        Operation::Read(_) => CompletionKind::Read,
    }
}

/// Completions not yet taken, oldest first.
#[derive(Debug)]
pub struct CompletionQueue {
    queue: VecDeque<Completion>,
    limit: usize,
    unpolled: Vec<u32>,
}

impl CompletionQueue {
    /// Creates a queue for `limit` completions of `slots` queue pairs.
    #[must_use]
    pub fn new(limit: usize, slots: usize) -> Self {
        Self {
            queue: VecDeque::with_capacity(limit),
            limit,
            unpolled: vec![0; slots],
        }
    }

    /// Adds a completion.
    ///
    /// # Panics
    /// The queue is full, because the owner has posted more work than announced.
    pub fn push(&mut self, completion: Completion) {
        assert!(
            self.queue.len() < self.limit,
            "completion queue overrun: {} do not fit",
            self.limit
        );
        self.unpolled[completion.qp.slot()] += 1;
        self.queue.push_back(completion);
    }

    /// Removes and returns the oldest completion.
    pub fn pop(&mut self) -> Option<Completion> {
        let completion = self.queue.pop_front()?;
        self.unpolled[completion.qp.slot()] -= 1;
        Some(completion)
    }

    /// True if no completion is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// True if completions of this queue pair are queued.
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

/// Shared receive queue.
///
/// The receive posted last is used first, because its memory is still in the cache. Receives need
/// no order (IBTA 10.2.9).
#[derive(Debug)]
pub struct ReceiveQueue {
    stack: Vec<RecvWork>,
    limit: usize,
}

impl ReceiveQueue {
    /// Creates a queue of `limit` receives.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            stack: Vec::with_capacity(limit),
            limit,
        }
    }

    /// Adds all receives, or returns false if they exceed the limit.
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
