//! An endpoint's queue pairs, and how their numbers are made.
//!
//! A queue pair number is 24 bits: the endpoint's turn, by which the kernel
//! chooses its socket; a generation, so that a number is not used again soon;
//! and the slot.

use std::time::Instant;

use cairn_rdma::{FabricError, PKey, QpId, QpOptions};

use crate::cm::{ConnId, Connect, QpTerms};
use crate::phy::batch::Place;
use crate::phy::outlets::Outlet;
use crate::phy::send::Flow;
use crate::qp::Qp;

pub(super) const INDEX_BITS: u32 = 6;
pub(super) const SLOT_BITS: u32 = 10;
pub(super) const SLOTS: usize = 1 << SLOT_BITS;
const GENERATION_BITS: u32 = 24 - INDEX_BITS - SLOT_BITS;

/// Which numbers an endpoint's queue pairs begin with. A peer must not take them
/// for those of an endpoint that was here before (IBTA 12.9.8.3.1, "stale"), so
/// they move on: past the slots that were used, and then to the next generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) generation: u16,
    /// The number of the first slot.
    pub(super) base: u16,
}

/// Where a queue pair stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Our REQ waits for an answer.
    Connecting,
    /// Our REP waits for a sign of life.
    Accepted,
    Established,
    /// The owner has heard, or is about to hear, that it is over.
    Broken,
    /// The owner has let go.
    Closing,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) phase: Phase,
    pub(super) conn: Option<ConnId>,
    pub(super) qpn: u32,
    pub(super) options: QpOptions,
    /// What we told the peer about our end.
    pub(super) terms: QpTerms,
    pub(super) flow: Flow,
    /// Whose socket the flow has, once the peer's end is known.
    pub(super) outlet: Option<Outlet>,
    /// Where its last packet went.
    pub(super) place: Place,
    /// Once the peer's end is known.
    pub(super) qp: Option<Qp>,
    /// It stands in the list of those that have something to send.
    pub(super) queued: bool,
    /// The earliest timer that stands in the heap for it.
    pub(super) timer_at: Option<Instant>,
    /// What our REQ said, to say it again for a smaller path MTU.
    pub(super) wish: Option<Box<Connect>>,
    /// Our membership.
    pub(super) pkey: PKey,
    /// What both ends agree on, as codes.
    pub(super) path_mtu: u8,
    pub(super) ack_timeout: u8,
}

#[derive(Debug)]
pub(super) struct Slots {
    index: u32,
    first: Numbers,
    limit: usize,
    /// Where to look for a vacancy first.
    turn: usize,
    slots: Vec<Slot>,
}

#[derive(Debug)]
struct Slot {
    generation: u16,
    /// Nobody has heard yet that its last queue pair is closed.
    unheard: bool,
    entry: Option<Entry>,
}

impl Slots {
    /// For the endpoint whose turn is `index`.
    pub(super) fn new(index: u32, limit: u16, mut first: Numbers) -> Self {
        if usize::from(first.base) + usize::from(limit) > SLOTS {
            first.base = 0;
            first.generation = first.generation.wrapping_add(1);
        }
        let slots = (0..limit).map(|_| Slot {
            generation: first.generation,
            unheard: false,
            entry: None,
        });
        Self {
            index,
            first,
            limit: usize::from(limit),
            turn: 0,
            slots: slots.collect(),
        }
    }

    /// A free slot: the id and the number of the queue pair that may live there.
    pub(super) fn vacancy(&self) -> Result<(QpId, u32), FabricError> {
        // In turn, so that it is long before a number comes again.
        let order = (self.turn..self.limit).chain(0..self.turn);
        let is_free = |&at: &usize| self.slots[at].entry.is_none() && !self.slots[at].unheard;
        let free = { order }.find(is_free);
        let slot = free.ok_or(FabricError::Limit {
            what: "queue pairs",
            limit: self.limit as u64,
        })?;
        let generation = self.slots[slot].generation;
        let id = QpId::new(slot as u16, generation);
        Ok((id, self.qpn(slot, generation)))
    }

    fn qpn(&self, slot: usize, generation: u16) -> u32 {
        let generation = u32::from(generation) & ((1 << GENERATION_BITS) - 1);
        let number = u32::from(self.first.base) + slot as u32;
        self.index << (24 - INDEX_BITS) | generation << SLOT_BITS | number
    }

    pub(super) fn insert(&mut self, id: QpId, entry: Entry) {
        let slot = &mut self.slots[id.slot()];
        assert!(slot.entry.is_none(), "a vacancy is free");
        self.turn = id.slot() + 1;
        slot.entry = Some(entry);
    }

    pub(super) fn get(&mut self, id: QpId) -> Option<&mut Entry> {
        let slot = self.slots.get_mut(id.slot())?;
        slot.entry
            .as_mut()
            .filter(|_| slot.generation == id.generation())
    }

    /// The queue pair with this number on the wire.
    pub(super) fn by_qpn(&mut self, qpn: u32) -> Option<(QpId, &mut Entry)> {
        let number = qpn as usize & (SLOTS - 1);
        let at = number.checked_sub(usize::from(self.first.base))?;
        let slot = self.slots.get_mut(at)?;
        let entry = slot.entry.as_mut().filter(|entry| entry.qpn == qpn)?;
        Some((QpId::new(at as u16, slot.generation), entry))
    }

    /// The queue pair in a slot.
    pub(super) fn by_slot(&mut self, at: u16) -> Option<(QpId, &mut Entry)> {
        let slot = self.slots.get_mut(usize::from(at))?;
        let id = QpId::new(at, slot.generation);
        slot.entry.as_mut().map(|entry| (id, entry))
    }

    pub(super) fn remove(&mut self, id: QpId) {
        let slot = &mut self.slots[id.slot()];
        slot.entry = None;
        slot.unheard = true;
        slot.generation = slot.generation.wrapping_add(1);
    }

    /// The owner has heard that a queue pair is closed: its slot is free.
    pub(super) fn heard(&mut self, id: QpId) {
        self.slots[id.slot()].unheard = false;
    }

    /// Numbers that none of the queue pairs so far has had.
    pub(super) fn next_numbers(&self) -> Numbers {
        let first = self.first;
        let lived = |slot: &Slot| {
            let ended = slot.generation.wrapping_sub(first.generation);
            ended + u16::from(slot.entry.is_some())
        };
        match self.slots.iter().map(lived).max().unwrap_or(0) {
            0 => first,
            1 => Numbers {
                base: first.base + self.limit as u16,
                ..first
            },
            most => Numbers {
                generation: first.generation.wrapping_add(most),
                ..first
            },
        }
    }

    pub(super) fn connections(&self) -> impl Iterator<Item = ConnId> {
        self.slots
            .iter()
            .filter_map(|slot| slot.entry.as_ref()?.conn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Numbers = Numbers {
        generation: u16::MAX,
        base: 0,
    };

    #[test]
    fn numbers_tell_endpoint_and_slot() {
        let slots = Slots::new(3, 1024, FIRST);
        let (id, qpn) = slots.vacancy().unwrap();
        assert_eq!(id.slot(), 0);
        assert_eq!(qpn >> (24 - INDEX_BITS), 3);
        assert!(qpn < 1 << 24);
        assert_eq!(slots.next_numbers(), FIRST);
    }

    #[test]
    fn endpoints_after_one_another_have_other_numbers() {
        let (mut seen, mut next) = (std::collections::HashSet::new(), FIRST);
        for _ in 0..10_000 {
            let mut slots = Slots::new(1, 3, next);
            for _ in 0..2 {
                let (id, qpn) = slots.vacancy().unwrap();
                assert!(seen.insert(qpn), "{qpn:#x} was another's");
                slots.turn = id.slot() + 1;
                slots.remove(id);
            }
            next = slots.next_numbers();
        }
    }

    #[test]
    fn a_slot_used_twice_costs_a_generation() {
        let mut slots = Slots::new(1, 1, FIRST);
        for _ in 0..2 {
            let (id, _) = slots.vacancy().unwrap();
            slots.remove(id);
            slots.heard(id);
        }
        let (generation, base) = (1, 0);
        assert_eq!(slots.next_numbers(), Numbers { generation, base });
    }
}
