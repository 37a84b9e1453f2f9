//! Layout of capsules in registered memory.
//!
//! Responses are at the head of the reactor's [`Arena`]. `ReceiveSlots` hold all SQEs, then the
//! in-capsule data. A receive has two segments, an SQE and a page-aligned data slot.

use std::io;
use std::sync::Arc;

use cairn_base::Mapping;
use cairn_disk::{Arena, Span, UNIT};
use cairn_rdma::{RecvWork, Sge, SgeList};
use nvme_proto::wire::sqe::SQE_BYTES;
use nvme_proto::wire::{Cqe, IntoBytes, Sqe};

use crate::work_id::WorkId;

const CQE_BYTES: usize = size_of::<Cqe>();

pub(crate) fn response_bytes(requests: usize) -> usize {
    requests * CQE_BYTES
}

#[inline(always)]
pub(crate) fn write_response(arena: &Arena, request: usize, cqe: &Cqe, lkey: u32) -> Sge {
    Sge {
        addr: arena.write_head(request * CQE_BYTES, cqe.as_bytes()),
        length: CQE_BYTES as u32,
        lkey,
    }
}

pub(crate) struct ReceiveSlots {
    mapping: Arc<Mapping>,
    count: u32,
    in_capsule_bytes: u32,
    data_offset: usize,
    stride: usize,
    slot: u16,
}

impl ReceiveSlots {
    pub(crate) fn new(count: u32, in_capsule_bytes: u32) -> io::Result<Self> {
        // SQEs are adjacent, so that parsing touches fewer cache lines and pages.
        let sqes = (count as usize * SQE_BYTES).next_multiple_of(UNIT);
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

    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    pub(crate) fn set_slot(&mut self, slot: u16) {
        self.slot = slot;
    }

    pub(crate) fn slot(&self) -> u16 {
        self.slot
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

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

    #[inline(always)]
    pub(crate) fn read_sqe(&self, index: u32, into: &mut Sqe) {
        let offset = index as usize * SQE_BYTES;
        self.mapping.read(offset, into.as_mut_bytes());
    }

    pub(crate) fn read_data(&self, index: u32, offset: usize, into: &mut [u8]) {
        assert!(offset + into.len() <= self.in_capsule_bytes as usize);
        self.mapping.read(self.data_at(index) + offset, into);
    }

    #[inline(always)]
    pub(crate) fn fuse(&self, index: u32) -> u8 {
        let mut flags = [0];
        self.mapping
            .read(index as usize * SQE_BYTES + 1, &mut flags);
        flags[0] & 0b11
    }

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
        let mut arena = Arena::new(response_bytes(300), 1 << 20, 64 << 10).unwrap();
        let last = write_response(&arena, 299, &Cqe::new(1, 2, Status::SUCCESS, 3), 7);
        let buffer = arena.pool().take(4096).unwrap();
        assert!(last.addr + u64::from(last.length) <= arena.span(&buffer, 4096).addr);
        arena.give(buffer);
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
