//! Work request ids of 64 bits: slot, kind, and a generation number that reveals late completions.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkKind {
    Receive = 0,
    Read = 1,
    Write = 2,
    /// SEND whose completion also completes the covered SENDs before it.
    Send = 3,
    Block = 4,
    /// SEND completed by a later [`Self::Send`], or by itself if it fails.
    CoveredSend = 5,
    /// READ completed by a later [`Self::LastRead`], or by itself if it fails.
    CoveredRead = 6,
    LastRead = 7,
    /// Signaled WRITE, which also completes each [`Self::Write`] before it.
    LastWrite = 8,
}

impl WorkKind {
    pub(crate) fn doing(self) -> &'static str {
        match self {
            Self::Receive => "receiving a capsule",
            Self::Read | Self::CoveredRead | Self::LastRead => {
                "fetching a command's data (RDMA READ)"
            }
            Self::Write | Self::LastWrite => "writing a command's data (RDMA WRITE)",
            Self::Send | Self::CoveredSend => "sending a response",
            Self::Block => "block I/O",
        }
    }
}

/// The upper byte is 0, because [`cairn_disk::Ring`] reserves it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkId(u64);

const KIND_SHIFT: u32 = 32;
const GENERATION_SHIFT: u32 = 40;

impl WorkId {
    #[inline]
    pub(crate) fn new(slot: u32, kind: WorkKind, generation: u16) -> Self {
        Self(
            u64::from(slot)
                | (kind as u64) << KIND_SHIFT
                | u64::from(generation) << GENERATION_SHIFT,
        )
    }

    #[inline]
    pub(crate) fn of_kind(self, kind: WorkKind) -> Self {
        Self::new(self.slot(), kind, self.generation())
    }

    /// Receives have generation 0, because a slot has at most one posted receive.
    pub(crate) fn receive(slot: u32) -> Self {
        Self::new(slot, WorkKind::Receive, 0)
    }

    #[inline]
    pub(crate) fn encode(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) fn decode(id: u64) -> Self {
        Self(id)
    }

    #[inline]
    pub(crate) fn slot(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    pub(crate) fn kind(self) -> WorkKind {
        match (self.0 >> KIND_SHIFT) as u8 {
            0 => WorkKind::Receive,
            1 => WorkKind::Read,
            2 => WorkKind::Write,
            3 => WorkKind::Send,
            4 => WorkKind::Block,
            5 => WorkKind::CoveredSend,
            6 => WorkKind::CoveredRead,
            7 => WorkKind::LastRead,
            8 => WorkKind::LastWrite,
            _ => never_posted(self.0),
        }
    }

    #[inline]
    pub(crate) fn generation(self) -> u16 {
        (self.0 >> GENERATION_SHIFT) as u16
    }
}

#[cold]
fn never_posted(id: u64) -> ! {
    panic!("a completion for {id:#x}, which was never posted");
}

impl fmt::Debug for WorkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, slot, generation) = (self.kind(), self.slot(), self.generation());
        write!(f, "{kind:?} of {slot}, generation {generation}")
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
            WorkKind::CoveredSend,
            WorkKind::CoveredRead,
            WorkKind::LastRead,
            WorkKind::LastWrite,
        ] {
            for (slot, generation) in [(0, 0), (u32::MAX, u16::MAX), (1023, 7)] {
                let id = WorkId::decode(WorkId::new(slot, kind, generation).encode());
                assert_eq!(
                    (id.slot(), id.kind(), id.generation()),
                    (slot, kind, generation)
                );
                assert_eq!(id.encode() >> 56, 0);
                let other = id.of_kind(WorkKind::Send);
                assert_eq!(
                    (other.slot(), other.kind(), other.generation()),
                    (slot, WorkKind::Send, generation)
                );
            }
        }
    }

    #[test]
    #[should_panic(expected = "never posted")]
    fn what_was_never_posted_cannot_complete() {
        WorkId::decode(9 << KIND_SHIFT).kind();
    }
}
