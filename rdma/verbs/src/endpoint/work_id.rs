//! Work request ids: numbers passed to the device and returned in completions.
//!
//! ```text
//! receive  1 ............... turn:16 slot:32
//! send     0 generation:15 slot:16 sequence:32
//! ```

use cairn_rdma::QpId;

use crate::receive_quotas::Posting;

const RECEIVE: u64 = 1 << 63;

const GENERATIONS: u16 = 1 << 15;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WorkId(u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Receive(Posting),
    Send {
        slot: u16,
        generation: u16,
        sequence: u32,
    },
}

impl WorkId {
    pub(super) fn receive(posting: Posting) -> Self {
        Self(RECEIVE | u64::from(posting.turn) << 32 | u64::from(posting.slot))
    }

    pub(super) fn send(qp: QpId, sequence: u32) -> Self {
        let generation = u64::from(qp.generation() % GENERATIONS);
        Self(generation << 48 | (qp.slot() as u64) << 32 | u64::from(sequence))
    }

    pub(super) fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    pub(super) fn raw(self) -> u64 {
        self.0
    }

    pub(super) fn owner(self) -> Owner {
        if self.0 & RECEIVE != 0 {
            return Owner::Receive(Posting {
                slot: self.0 as u32,
                turn: (self.0 >> 32) as u16,
            });
        }
        Owner::Send {
            slot: (self.0 >> 32) as u16,
            generation: (self.0 >> 48) as u16,
            sequence: self.0 as u32,
        }
    }
}

pub(super) fn same_generation(qp: QpId, generation: u16) -> bool {
    qp.generation() % GENERATIONS == generation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_finds_its_way_back() {
        let (slot, turn) = (7, u16::MAX);
        let posting = Posting { slot, turn };
        assert_eq!(WorkId::receive(posting).owner(), Owner::Receive(posting));
        let qp = QpId::new(3, 0x8005);
        let Owner::Send {
            slot,
            generation,
            sequence,
        } = WorkId::send(qp, u32::MAX).owner()
        else {
            panic!("a send came back as a receive")
        };
        assert_eq!((slot, sequence), (3, u32::MAX));
        assert!(same_generation(qp, generation));
        assert!(!same_generation(QpId::new(3, 0x8006), generation));
    }
}
