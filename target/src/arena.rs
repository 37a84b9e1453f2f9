//! The registered memory of a reactor.
//!
//! Two kinds of mapping, because devices come and go and data does not care:
//!
//! * one [`Arena`] a reactor: `[responses | data buffers]`, registered with
//!   every device in use and with the ring;
//! * one [`ReceiveSlots`] a reactor and device: `[SQEs | in-capsule data]`.
//!   A capsule lands in two pieces, its SQE among the SQEs and its data in a
//!   page-aligned slot, so that in-capsule data can go to disk from where it
//!   landed.

use std::io;
use std::sync::Arc;

use cairn_rdma::{Mapping, RecvWork, Sge, SgeList};
use nvme_proto::wire::sqe::SQE_BYTES;
use nvme_proto::wire::{Cqe, IntoBytes, Sqe};

use crate::pool::{Buffer, Pool, UNIT};
use crate::ring::Span;
use crate::work_id::WorkId;

/// Bytes of a response capsule: the CQE alone.
const CQE_BYTES: usize = size_of::<Cqe>();

/// Buffers of a page each for commands that must get through: those of admin queues and
/// Connects.
const SPARES: usize = 32;

/// Responses and data buffers.
pub(crate) struct Arena {
    mapping: Arc<Mapping>,
    pool: Pool,
    /// Bytes of the pool; the spare buffers lie behind it.
    data: usize,
    /// Buffers of a page each that are not the pool's.
    spare: Vec<Buffer>,
    data_offset: usize,
    /// The ring's name for the mapping.
    slot: u16,
}

impl Arena {
    /// Memory for `requests` responses and `data` bytes of buffers up to `largest`.
    pub(crate) fn new(requests: usize, data: usize, largest: usize) -> io::Result<Self> {
        // A compare holds two buffers at once, each as large as a transfer may
        // be; and all of the area must be made of largest buffers.
        let data = data.max(2 * largest).next_multiple_of(largest);
        // One CQE for each request that may be answered at a time.
        let responses = (requests * CQE_BYTES).next_multiple_of(UNIT);
        let mapping = Arc::new(Mapping::anonymous(responses + data + SPARES * UNIT)?);
        let pool = Pool::new(data, largest);
        Ok(Self {
            mapping,
            pool,
            data,
            spare: (0..SPARES).map(|n| Buffer::at(data + n * UNIT)).collect(),
            data_offset: responses,
            slot: 0,
        })
    }

    /// The memory, to register it.
    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Tells what the ring calls the mapping.
    pub(crate) fn set_slot(&mut self, slot: u16) {
        self.slot = slot;
    }

    /// Bytes of all data buffers.
    pub(crate) fn data_bytes(&self) -> usize {
        self.data
    }

    /// Bytes of data buffers that are taken.
    pub(crate) fn taken_bytes(&self) -> usize {
        self.pool.taken_bytes() + (SPARES - self.spare.len()) * UNIT
    }

    /// A buffer of a page that the pool does not have, if there is one left.
    pub(crate) fn take_spare(&mut self) -> Option<Buffer> {
        self.spare.pop()
    }

    /// Takes a buffer back.
    pub(crate) fn give(&mut self, buffer: Buffer) {
        if buffer.offset() < self.data {
            self.pool.give(buffer);
        } else {
            self.spare.push(buffer);
        }
    }

    /// The data buffers.
    pub(crate) fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// The first `length` bytes of a buffer.
    pub(crate) fn span(&self, buffer: &Buffer, length: u32) -> Span {
        assert!(
            length as usize <= buffer.len(),
            "{length} bytes of {buffer:?}"
        );
        let offset = self.data_offset + buffer.offset();
        Span {
            buffer: self.slot,
            addr: self.mapping.addr() + offset as u64,
            length,
        }
    }

    /// Puts the response of a request where a SEND can take it from.
    #[inline(always)]
    pub(crate) fn write_response(&self, request: usize, cqe: &Cqe, lkey: u32) -> Sge {
        let offset = request * CQE_BYTES;
        assert!(offset + CQE_BYTES <= self.data_offset, "request {request}");
        self.mapping.write(offset, cqe.as_bytes());
        let addr = self.mapping.addr() + offset as u64;
        Sge {
            addr,
            length: CQE_BYTES as u32,
            lkey,
        }
    }

    /// Copies bytes into a buffer.
    pub(crate) fn write(&self, buffer: &Buffer, bytes: &[u8]) {
        assert!(
            bytes.len() <= buffer.len(),
            "{} bytes into {buffer:?}",
            bytes.len()
        );
        self.mapping
            .write(self.data_offset + buffer.offset(), bytes);
    }
}

/// Where the capsules of one device land.
pub(crate) struct ReceiveSlots {
    mapping: Arc<Mapping>,
    count: u32,
    in_capsule_bytes: u32,
    data_offset: usize,
    /// From one slot's data to the next.
    stride: usize,
    /// The ring's name for the mapping.
    slot: u16,
}

impl ReceiveSlots {
    /// `count` slots, for capsules with up to `in_capsule_bytes` of data.
    pub(crate) fn new(count: u32, in_capsule_bytes: u32) -> io::Result<Self> {
        // The SQEs lie close together: parsing touches few cache lines and pages.
        let sqes = (count as usize * SQE_BYTES).next_multiple_of(UNIT);
        // The data of a slot starts on a page, as direct I/O wants it.
        let stride = (in_capsule_bytes as usize).next_multiple_of(UNIT);
        let mapping = Arc::new(Mapping::anonymous(sqes + count as usize * stride)?);
        Ok(Self {
            mapping,
            count,
            in_capsule_bytes,
            data_offset: sqes,
            stride,
            slot: 0,
        })
    }

    /// The memory, to register it.
    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Tells what the ring calls the mapping.
    pub(crate) fn set_slot(&mut self, slot: u16) {
        self.slot = slot;
    }

    /// What the ring calls the mapping.
    pub(crate) fn slot(&self) -> u16 {
        self.slot
    }

    /// How many slots there are.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// The receive that fills slot `index`.
    pub(crate) fn receive(&self, index: u32, lkey: u32) -> RecvWork {
        assert!(index < self.count, "receive slot {index} of {}", self.count);
        let base = self.mapping.addr();
        let addr = base + (index as usize * SQE_BYTES) as u64;
        let sqe = Sge {
            addr,
            length: SQE_BYTES as u32,
            lkey,
        };
        let data = Sge {
            addr: base + self.data_at(index) as u64,
            length: self.in_capsule_bytes,
            lkey,
        };
        let sges = if data.length == 0 {
            SgeList::one(sqe)
        } else {
            SgeList::two(sqe, data)
        };
        RecvWork {
            id: WorkId::receive(index).encode(),
            sges,
        }
    }

    /// Copies the SQE that landed in slot `index`.
    #[inline(always)]
    pub(crate) fn read_sqe(&self, index: u32, into: &mut Sqe) {
        let offset = index as usize * SQE_BYTES;
        self.mapping.read(offset, into.as_mut_bytes());
    }

    /// `length` bytes at `offset` of the data that landed in slot `index`.
    pub(crate) fn span(&self, index: u32, offset: u32, length: u32) -> Span {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.in_capsule_bytes),
            "{length} at {offset}"
        );
        let addr = self.mapping.addr() + (self.data_at(index) + offset as usize) as u64;
        Span {
            buffer: self.slot,
            addr,
            length,
        }
    }

    fn data_at(&self, index: u32) -> usize {
        self.data_offset + index as usize * self.stride
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme_proto::wire::Status;

    #[test]
    fn responses_and_buffers_do_not_meet() {
        let mut arena = Arena::new(300, 1 << 20, 64 << 10).unwrap();
        let last = arena.write_response(299, &Cqe::new(1, 2, Status::SUCCESS, 3), 7);
        let buffer = arena.pool().take(4096).unwrap();
        let span = arena.span(&buffer, 4096);
        assert!(last.addr + u64::from(last.length) <= span.addr);
        assert!(span.addr.is_multiple_of(UNIT as u64));
        assert_eq!(arena.mapping().len(), 8192 + (1 << 20) + SPARES * UNIT);
        arena.give(buffer);
    }

    #[test]
    fn spare_buffers_lie_behind_the_others_and_come_back() {
        let mut arena = Arena::new(1, 1 << 20, 64 << 10).unwrap();
        let spares: Vec<Buffer> = std::iter::from_fn(|| arena.take_spare()).collect();
        assert_eq!(spares.len(), SPARES);
        assert_eq!(arena.taken_bytes(), SPARES * UNIT);
        let end = arena.mapping().addr() + arena.mapping().len() as u64;
        for buffer in spares {
            let span = arena.span(&buffer, UNIT as u32);
            assert!(buffer.offset() >= arena.data_bytes());
            assert!(span.addr + UNIT as u64 <= end);
            arena.give(buffer);
        }
        assert_eq!(arena.taken_bytes(), 0);
    }

    #[test]
    fn two_buffers_of_the_largest_size_always_fit() {
        let mut arena = Arena::new(1, 4096, 1 << 20).unwrap();
        let (one, two) = (arena.pool().take(1 << 20), arena.pool().take(1 << 20));
        assert!(one.is_some() && two.is_some());
    }

    #[test]
    fn capsules_land_in_two_pieces() {
        let slots = ReceiveSlots::new(100, 8192).unwrap();
        let receive = slots.receive(99, 5);
        let [sqe, data] = receive.sges.as_slice() else {
            panic!("two pieces: {receive:?}")
        };
        assert_eq!(sqe.addr, slots.mapping().addr() + 99 * 64);
        assert_eq!(data.addr, slots.span(99, 0, 1).addr);
        assert!(data.addr.is_multiple_of(UNIT as u64));
        assert!(slots.mapping().contains(data.addr, u64::from(data.length)));
        assert_eq!(slots.span(99, 512, 512).addr, data.addr + 512);
    }

    #[test]
    #[should_panic(expected = "8192 at 1")]
    fn a_span_stays_in_its_slot() {
        ReceiveSlots::new(100, 8192).unwrap().span(0, 1, 8192);
    }
}
