//! Work request ids: numbers passed to the device and returned in completions.
//!
//! ```text
//! receive  1 ........................... slot:32
//! send     0 generation:15 slot:16 sequence:32
//! ```

use cairn_rdma::QpId;

const RECEIVE: u64 = 1 << 63;

const GENERATIONS: u16 = 1 << 15;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WorkId(u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Receive(u32),
    Send {
        slot: u16,
        generation: u16,
        sequence: u32,
    },
}

impl WorkId {
    pub(super) fn receive(slot: u32) -> Self {
        Self(RECEIVE | u64::from(slot))
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
            return Owner::Receive(self.0 as u32);
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
        assert_eq!(WorkId::receive(7).owner(), Owner::Receive(7));
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
