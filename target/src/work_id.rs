//! What a work request is called: slot, kind and generation, in 64 bits.
//!
//! A completion finds its slot by this and by nothing else, so no pointer ever
//! goes through a device; and one that comes late, for a slot that was given to
//! another, is known by its generation.

/// What a completion is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkKind {
    /// A receive: the slot is a receive slot.
    Receive = 0,
    /// An RDMA READ of a request's data.
    Read = 1,
    /// An RDMA WRITE of a request's data.
    Write = 2,
    /// The SEND of a request's response.
    Send = 3,
    /// Block I/O of a request.
    Block = 4,
}

impl WorkKind {
    /// What was being done, for the log.
    pub(crate) fn doing(self) -> &'static str {
        match self {
            Self::Receive => "receiving a capsule",
            Self::Read => "fetching a command's data (RDMA READ)",
            Self::Write => "writing a command's data (RDMA WRITE)",
            Self::Send => "sending a response",
            Self::Block => "block I/O",
        }
    }
}

/// A name for a work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkId {
    /// A receive slot, or a request.
    pub(crate) slot: u32,
    /// What for.
    pub(crate) kind: WorkKind,
    /// Which request in that slot, modulo 2^16.
    pub(crate) generation: u16,
}

const KIND_SHIFT: u32 = 32;
const GENERATION_SHIFT: u32 = 40;

impl WorkId {
    /// A receive into `slot`. It needs no generation: a slot is posted once at a time.
    pub(crate) fn receive(slot: u32) -> Self {
        Self {
            slot,
            kind: WorkKind::Receive,
            generation: 0,
        }
    }

    /// As a work request's id. The upper byte stays 0, which the ring reserves.
    #[inline]
    pub(crate) fn encode(self) -> u64 {
        u64::from(self.slot)
            | (self.kind as u64) << KIND_SHIFT
            | u64::from(self.generation) << GENERATION_SHIFT
    }

    /// The name in a completion.
    ///
    /// # Panics
    /// If no work request of ours ever had that id.
    #[inline]
    pub(crate) fn decode(id: u64) -> Self {
        let kind = match (id >> KIND_SHIFT) as u8 {
            0 => WorkKind::Receive,
            1 => WorkKind::Read,
            2 => WorkKind::Write,
            3 => WorkKind::Send,
            4 => WorkKind::Block,
            _ => panic!("a completion for {id:#x}, which was never posted"),
        };
        Self {
            slot: id as u32,
            kind,
            generation: (id >> GENERATION_SHIFT) as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_the_round_trip() {
        for kind in [
            WorkKind::Receive,
            WorkKind::Read,
            WorkKind::Write,
            WorkKind::Send,
            WorkKind::Block,
        ] {
            for (slot, generation) in [(0, 0), (u32::MAX, u16::MAX), (1023, 7)] {
                let id = WorkId {
                    slot,
                    kind,
                    generation,
                };
                assert_eq!(WorkId::decode(id.encode()), id);
                assert_eq!(id.encode() >> 56, 0);
            }
        }
    }

    #[test]
    #[should_panic(expected = "never posted")]
    fn what_was_never_posted_cannot_complete() {
        WorkId::decode(9 << KIND_SHIFT);
    }
}
