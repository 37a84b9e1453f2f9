//! What a queue pair posts at the end of a round.

use cairn_rdma::{Operation, SendWork};

/// Work of this round, not yet posted: RDMA WRITEs first, then all else.
///
/// A response must follow its data, and no more than that: with the data of
/// several commands together and their responses together, packets of one size
/// are neighbours, which a network stack sends at the price of one.
///
/// A long transfer fills such batches by itself. Its response goes right behind
/// it, so that the host works on what it has while the next one is on its way:
/// otherwise both ends take turns.
#[derive(Debug)]
pub(crate) struct Outbox {
    writes: Vec<SendWork>,
    others: Vec<SendWork>,
}

impl Outbox {
    /// The most work that one post takes.
    pub(crate) const MAX: usize = 64;

    /// Bytes of a transfer that is long: half of what the largest IP packet holds.
    const LONG: u64 = 32 << 10;

    pub(crate) fn new() -> Self {
        Self {
            writes: Vec::with_capacity(Self::MAX),
            others: Vec::with_capacity(Self::MAX),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.writes.len() + self.others.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn push(&mut self, chain: &[SendWork]) {
        assert!(
            self.len() + chain.len() <= Self::MAX,
            "a full outbox is posted first"
        );
        for &work in chain {
            match work.op {
                Operation::Write(_) => {
                    if work.sges.total_len() >= Self::LONG {
                        // Responses to what came before do not wait for it.
                        self.writes.append(&mut self.others);
                    }
                    self.writes.push(work);
                }
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
    use cairn_rdma::{RemoteBuffer, Sge, SgeList};

    const WRITE: Operation = Operation::Write(RemoteBuffer { addr: 0, rkey: 0 });

    fn work(id: u64, op: Operation, length: u64) -> SendWork {
        SendWork {
            id,
            op,
            sges: SgeList::one(Sge {
                addr: 0,
                length: length as u32,
                lkey: 0,
            }),
            signaled: true,
        }
    }

    fn ids(outbox: &mut Outbox) -> Vec<u64> {
        let taken = outbox.take();
        let ids = taken.iter().map(|work| work.id).collect();
        outbox.give_back(taken);
        ids
    }

    #[test]
    fn data_goes_before_all_responses_and_both_keep_their_order() {
        let mut outbox = Outbox::new();
        outbox.push(&[work(1, WRITE, 4096), work(2, Operation::Send, 16)]);
        outbox.push(&[work(3, Operation::Send, 16)]);
        outbox.push(&[work(4, WRITE, 4096), work(5, Operation::Send, 16)]);
        assert_eq!(outbox.len(), 5);
        assert_eq!(ids(&mut outbox), [1, 4, 2, 3, 5]);
        assert!(outbox.is_empty());
    }

    #[test]
    fn a_long_transfer_holds_up_no_response() {
        let mut outbox = Outbox::new();
        let long = Outbox::LONG;
        outbox.push(&[work(1, WRITE, 4096), work(2, Operation::Send, 16)]);
        outbox.push(&[work(3, WRITE, long), work(4, Operation::Send, 16)]);
        outbox.push(&[work(5, WRITE, long), work(6, Operation::Send, 16)]);
        outbox.push(&[work(7, WRITE, 4096), work(8, Operation::Send, 16)]);
        assert_eq!(ids(&mut outbox), [1, 2, 3, 4, 5, 7, 6, 8]);
    }
}
