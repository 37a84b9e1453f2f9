use cairn_rdma::{Operation, SendWork};

use crate::request::RequestId;
use crate::work_id::{WorkId, WorkKind};

/// Work that a queue pair posts at the end of a round, in trains: RDMA WRITEs, then all other work.
///
/// Packets of equal size are adjacent in a train, so that the network stack sends them as one
/// batch. A long transfer fills whole batches, so its response follows directly.
///
/// A response is signaled after `COVERED_BYTES` and at the end of a post: its completion also
/// completes the unsignaled ("covered") responses before it.
#[derive(Debug)]
pub(crate) struct Outbox {
    trains: Vec<SendWork>,
    writes: Vec<SendWork>,
    write_bytes: u64,
    others: Vec<SendWork>,
    count: usize,
    covered: Option<RequestId>,
    covered_bytes: u64,
    /// Minimum that each response adds to `covered_bytes`, so that one signaled response completes
    /// a bounded number of responses.
    bytes_least: u64,
}

impl Outbox {
    pub(crate) const MAX: usize = 120;

    const TRAIN_MAX: usize = 32;

    /// Maximum bytes of several WRITEs in a train: one datagram.
    const TRAIN_BYTES: u64 = 60 << 10;

    /// Minimum bytes of a WRITE that begins a new train: half of the largest IP packet.
    const LONG: u64 = 32 << 10;

    /// Bytes of data after which a response is signaled (see `bytes_least`).
    const COVERED_BYTES: u64 = 128 << 10;

    /// Creates an outbox for a queue pair with `send_work` work requests. A response takes up to
    /// two; one completion frees at most `send_work / 4`.
    pub(crate) fn new(send_work: u32) -> Self {
        Self {
            covered: None,
            covered_bytes: 0,
            bytes_least: Self::COVERED_BYTES.div_ceil(u64::from(send_work / 8).max(1)),
            trains: Vec::with_capacity(Self::MAX),
            writes: Vec::with_capacity(Self::MAX),
            write_bytes: 0,
            others: Vec::with_capacity(Self::TRAIN_MAX),
            count: 0,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline]
    pub(crate) fn has_room(&self, count: usize) -> bool {
        self.count + count <= Self::MAX
    }

    #[inline(always)]
    pub(crate) fn push_write(&mut self, work: SendWork, bytes: u32) {
        let bytes = u64::from(bytes);
        let is_full = self.write_bytes + bytes > Self::TRAIN_BYTES;
        if is_full || bytes >= Self::LONG || self.writes.len() == Self::TRAIN_MAX {
            self.end_train();
        }
        self.write_bytes += bytes;
        self.count += 1;
        push(&mut self.writes, work);
    }

    pub(crate) fn add_data(&mut self, bytes: u32) {
        self.covered_bytes += u64::from(bytes);
    }

    /// Must be called between adding the data of `request` and its response. Returns the previous
    /// response if the new response covers it, and whether the new response is signaled.
    #[inline(always)]
    pub(crate) fn cover(&mut self, request: RequestId, bytes: u32) -> (Option<RequestId>, bool) {
        self.covered_bytes += u64::from(bytes).max(self.bytes_least);
        let signaled = self.covered_bytes >= Self::COVERED_BYTES;
        let newest = if signaled {
            self.covered_bytes = 0;
            None
        } else {
            Some(request)
        };
        (std::mem::replace(&mut self.covered, newest), signaled)
    }

    #[inline(always)]
    pub(crate) fn push_other(&mut self, work: SendWork) {
        if self.others.len() == Self::TRAIN_MAX {
            self.end_train();
        }
        self.count += 1;
        push(&mut self.others, work);
    }

    /// Returns the work in posting order. [`Self::give_back`] must return the allocation.
    pub(crate) fn take(&mut self) -> Vec<SendWork> {
        self.end_train();
        self.count = 0;
        if self.covered.take().is_some() {
            self.covered_bytes = 0;
            let last = self.trains.iter_mut().rfind(|work| is_response(work));
            signal(last.expect("a response is covered"));
        }
        std::mem::take(&mut self.trains)
    }

    pub(crate) fn give_back(&mut self, mut taken: Vec<SendWork>) {
        taken.clear();
        self.trains = taken;
    }

    #[cold]
    fn end_train(&mut self) {
        assert!(self.has_room(0), "a full outbox is posted first");
        if self.trains.is_empty() {
            std::mem::swap(&mut self.trains, &mut self.writes);
        } else {
            self.trains.append(&mut self.writes);
        }
        self.trains.append(&mut self.others);
        self.write_bytes = 0;
    }
}

#[inline(always)]
fn push(train: &mut Vec<SendWork>, work: SendWork) {
    assert!(train.len() < train.capacity(), "a train has room");
    train.push(work);
}

fn is_response(work: &SendWork) -> bool {
    matches!(
        work.op,
        Operation::Send | Operation::SendWithInvalidate { .. }
    )
}

fn signal(response: &mut SendWork) {
    response.signaled = true;
    response.id = WorkId::decode(response.id).of_kind(WorkKind::Send).encode();
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_rdma::{RemoteBuffer, Sge, SgeList};

    use crate::ids::QpairId;
    use crate::request::RequestTable;

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

    fn push_all(outbox: &mut Outbox, chain: &[SendWork]) {
        for &work in chain {
            match work.op {
                Operation::Write(_) => outbox.push_write(work, work.sges.total_len() as u32),
                _ => outbox.push_other(work),
            }
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
        let mut outbox = Outbox::new(1 << 10);
        push_all(
            &mut outbox,
            &[work(1, WRITE, 4096), work(2, Operation::Send, 16)],
        );
        push_all(&mut outbox, &[work(3, Operation::Send, 16)]);
        push_all(
            &mut outbox,
            &[work(4, WRITE, 4096), work(5, Operation::Send, 16)],
        );
        assert_eq!(outbox.count, 5);
        assert_eq!(ids(&mut outbox), [1, 4, 2, 3, 5]);
        assert!(outbox.is_empty());
    }

    #[test]
    fn no_more_data_goes_together_than_a_datagram_holds() {
        let mut outbox = Outbox::new(1 << 10);
        for id in 0..16 {
            push_all(
                &mut outbox,
                &[work(id, WRITE, 4096), work(100 + id, Operation::Send, 16)],
            );
        }
        let trains = (0..15).chain(100..115).chain([15, 115]);
        assert_eq!(ids(&mut outbox), trains.collect::<Vec<u64>>());
    }

    #[test]
    fn a_long_transfer_holds_up_no_response() {
        let mut outbox = Outbox::new(1 << 10);
        let long = Outbox::LONG;
        push_all(
            &mut outbox,
            &[work(1, WRITE, 4096), work(2, Operation::Send, 16)],
        );
        push_all(
            &mut outbox,
            &[work(3, WRITE, long), work(4, Operation::Send, 16)],
        );
        push_all(
            &mut outbox,
            &[work(5, WRITE, long), work(6, Operation::Send, 16)],
        );
        push_all(
            &mut outbox,
            &[work(7, WRITE, 4096), work(8, Operation::Send, 16)],
        );
        assert_eq!(ids(&mut outbox), [1, 2, 3, 4, 5, 7, 6, 8]);
    }

    #[test]
    fn it_never_grows() {
        let mut outbox = Outbox::new(1 << 10);
        for chain in [
            &[work(0, Operation::Send, 16)][..],
            &[work(0, WRITE, 512), work(1, Operation::Send, 16)],
        ] {
            while outbox.has_room(chain.len()) {
                push_all(&mut outbox, chain);
            }
            let taken = outbox.take();
            assert_eq!((taken.len(), taken.capacity()), (Outbox::MAX, Outbox::MAX));
            outbox.give_back(taken);
        }
        let capacities = (outbox.writes.capacity(), outbox.others.capacity());
        assert_eq!(capacities, (Outbox::MAX, Outbox::TRAIN_MAX));
    }

    fn chain(outbox: &mut Outbox, data: &[u32]) -> (Vec<Option<usize>>, Vec<bool>) {
        let mut table = RequestTable::new(data.len() as u32);
        let ids: Vec<RequestId> = data
            .iter()
            .map(|_| table.take().begin(QpairId::NONE).0)
            .collect();
        let ended = ids.iter().zip(data).map(|(&id, &bytes)| {
            if bytes > 0 {
                let write = WorkId::decode(table.work_id(id, WorkKind::Write));
                outbox.push_write(work(write.encode(), WRITE, u64::from(bytes)), bytes);
            }
            let (before, signaled) = outbox.cover(id, bytes);
            let kind = match signaled {
                true => WorkKind::Send,
                false => WorkKind::CoveredSend,
            };
            outbox.push_other(SendWork {
                signaled,
                ..work(table.work_id(id, kind), Operation::Send, 16)
            });
            before.map(|before| ids.iter().position(|&id| id == before).unwrap())
        });
        let ended = ended.collect();
        let taken = outbox.take();
        let responses = taken.iter().filter(|work| is_response(work));
        let signaled = responses.map(|work| {
            let is_send = WorkId::decode(work.id).kind() == WorkKind::Send;
            assert_eq!(work.signaled, is_send);
            work.signaled
        });
        let signaled = signaled.collect();
        outbox.give_back(taken);
        table.abandon_all();
        (ended, signaled)
    }

    #[test]
    fn the_last_response_of_a_post_ends_the_others() {
        let mut outbox = Outbox::new(1 << 10);
        for data in [0, 4096] {
            let (ended, signaled) = chain(&mut outbox, &[data; 3]);
            assert_eq!(ended, [None, Some(0), Some(1)]);
            assert_eq!(signaled, [false, false, true]);
        }
    }

    #[test]
    fn a_completion_ends_no_more_than_a_quarter_of_the_credits() {
        let mut outbox = Outbox::new(32);
        for data in [0, 512] {
            let (ended, signaled) = chain(&mut outbox, &[data; 6]);
            assert_eq!(ended, [None, Some(0), Some(1), Some(2), None, Some(4)]);
            assert_eq!(signaled, [false, false, false, true, false, true]);
        }
        let (ended, signaled) = chain(&mut Outbox::new(2), &[0; 2]);
        assert_eq!((ended, signaled), (vec![None; 2], vec![true; 2]));
    }

    #[test]
    fn long_data_is_free_when_its_own_response_has_ended() {
        let mut outbox = Outbox::new(1 << 10);
        let most = Outbox::COVERED_BYTES as u32;
        let (ended, signaled) = chain(&mut outbox, &[most, most / 2, most / 2, most / 2]);
        assert_eq!(ended, [None, None, Some(1), None]);
        assert_eq!(signaled, [true, false, true, true]);
    }
}
