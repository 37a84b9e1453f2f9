//! What a queue pair posts at the end of a round.

use cairn_rdma::{Operation, SendWork};

/// Work of this round, not yet posted: RDMA WRITEs first, then all else.
///
/// A response must follow its data, and no more than that: with the data of
/// several commands together and their responses together, packets of one size
/// are neighbours, which a network stack sends at the price of one.
#[derive(Debug)]
pub(crate) struct Outbox {
    writes: Vec<SendWork>,
    others: Vec<SendWork>,
}

impl Outbox {
    /// The most work that one post takes.
    pub(crate) const MAX: usize = 64;

    pub(crate) fn new() -> Self {
        Self {
            writes: Vec::with_capacity(Self::MAX),
            others: Vec::with_capacity(Self::MAX),
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.writes.len() + self.others.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    // Inlined, so that the kind of each work request is known and it is made in place.
    #[inline]
    pub(crate) fn push(&mut self, chain: &[SendWork]) {
        assert!(
            self.len() + chain.len() <= Self::MAX,
            "a full outbox is posted first"
        );
        for &work in chain {
            match work.op {
                Operation::Write(_) => self.writes.push(work),
                _ => self.others.push(work),
            }
        }
    }

    /// All there is, in the order in which to post it. [`Self::give_back`] takes
    /// the memory back.
    pub(crate) fn take(&mut self) -> Vec<SendWork> {
        self.writes.append(&mut self.others);
        std::mem::take(&mut self.writes)
    }

    pub(crate) fn give_back(&mut self, mut taken: Vec<SendWork>) {
        taken.clear();
        self.writes = taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_rdma::{RemoteBuffer, SgeList};

    fn work(id: u64, op: Operation) -> SendWork {
        SendWork {
            id,
            op,
            sges: SgeList::EMPTY,
            signaled: true,
        }
    }

    #[test]
    fn data_goes_before_all_responses_and_both_keep_their_order() {
        let write = Operation::Write(RemoteBuffer { addr: 0, rkey: 0 });
        let mut outbox = Outbox::new();
        outbox.push(&[work(1, write), work(2, Operation::Send)]);
        outbox.push(&[work(3, Operation::Send)]);
        outbox.push(&[work(4, write), work(5, Operation::Send)]);
        assert_eq!(outbox.len(), 5);
        let taken = outbox.take();
        let ids: Vec<u64> = taken.iter().map(|work| work.id).collect();
        assert_eq!(ids, [1, 4, 2, 3, 5]);
        outbox.give_back(taken);
        assert!(outbox.is_empty());
    }
}
