//! Recently answered READs, which identify repeated READ requests.

use alloc::collections::VecDeque;

use crate::wire::Reth;

#[derive(Debug)]
pub(super) struct AnsweredReads {
    reads: VecDeque<AnsweredRead>,
    limit: usize,
}

#[derive(Debug, Clone, Copy)]
struct AnsweredRead {
    first: u64,
    reth: Reth,
}

impl AnsweredReads {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            reads: VecDeque::with_capacity(limit),
            limit,
        }
    }

    pub(super) fn push(&mut self, first: u64, reth: Reth) {
        if self.reads.len() == self.limit {
            self.reads.pop_front();
        }
        self.reads.push_back(AnsweredRead { first, reth });
    }

    /// True if the request at `sequence` repeats an answered READ or a part of it (IBTA 9.7.5.1.3).
    pub(super) fn covers(&self, sequence: u64, reth: Reth, mtu: u32) -> bool {
        let mut reads = self.reads.iter();
        reads.any(|read| read.covers(sequence, reth, mtu))
    }
}

impl AnsweredRead {
    fn covers(&self, sequence: u64, reth: Reth, mtu: u32) -> bool {
        let Some(packets) = sequence.checked_sub(self.first) else {
            return false;
        };
        let (skipped, length) = (packets * u64::from(mtu), u64::from(self.reth.dma_len));
        let is_part = match reth.dma_len {
            0 => length == 0 && packets == 0,
            part => skipped + u64::from(part) <= length,
        };
        is_part && reth.rkey == self.reth.rkey && reth.va == self.reth.va.wrapping_add(skipped)
    }
}
