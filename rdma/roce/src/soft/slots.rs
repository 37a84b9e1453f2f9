//! Queue pairs of an endpoint, and allocation of their numbers.
//!
//! The top 6 bits of a queue pair number are the index of the endpoint, by which the kernel selects
//! the socket. The other 18 bits are random. The low 10 bits, distinct among current queue pairs,
//! are the index into `by_number`.

use std::collections::VecDeque;

use cairn_roce_proto::time::Instant;

use cairn_base::slab::{Reuse, Slab};
use cairn_rdma::{FabricError, PKey, QpId, QpOptions};

use crate::phy::batch::BatchPosition;
use crate::phy::send::Flow;
use crate::phy::send_sockets::SendSocket;
use cairn_base::entropy::Entropy;
use cairn_roce_proto::cm::{ConnId, Connect, QpTerms};
use cairn_roce_proto::qp::Qp;

pub(super) const INDEX_BITS: u32 = 6;
pub(super) const SLOT_BITS: u32 = 10;
pub(super) const SLOTS: usize = 1 << SLOT_BITS;
const GENERATION_BITS: u32 = 24 - INDEX_BITS - SLOT_BITS;
const NUMBERS: usize = SLOTS << GENERATION_BITS;
const NO_SLOT: u16 = u16::MAX;
const PROMISED: u16 = u16::MAX - 1;
/// Queue pair numbers drawn at a time, so that the kernel's filter changes once for all of them.
const DRAWN: usize = 64;
/// Maximum ended queue pairs whose packets still pass the kernel's filter, because the kernel may
/// combine them with packets for other queue pairs (GRO).
const ENDED: usize = 64;

/// Queue pair numbers used by the successive endpoints of one index.
///
/// A number is repeated only after half of all numbers, or all with the drawn low bits, were used: a
/// peer could mistake a new queue pair for an old one (IBTA 12.9.8.3.1, "stale").
#[derive(Debug, Default)]
pub(super) struct Numbers {
    had: Vec<u64>,
    count: usize,
}

impl Numbers {
    fn has(&self, number: usize) -> bool {
        let word = self.had.get(number / 64).copied().unwrap_or(0);
        word >> (number % 64) & 1 == 1
    }

    fn add(&mut self, number: usize) {
        if self.had.is_empty() || self.count == NUMBERS / 2 {
            self.had = vec![0; NUMBERS / 64];
            self.count = 0;
        }
        self.count += usize::from(!self.has(number));
        self.had[number / 64] |= 1 << (number % 64);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Connecting,
    Accepted,
    Established,
    Broken,
    Closing,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) phase: Phase,
    pub(super) conn: Option<ConnId>,
    pub(super) qpn: u32,
    pub(super) options: QpOptions,
    pub(super) terms: QpTerms,
    pub(super) flow: Flow,
    pub(super) theirs: Option<QpTerms>,
    pub(super) send_socket: Option<SendSocket>,
    pub(super) place: BatchPosition,
    /// `None` until the REP arrives; at an accepting end, until the peer proves its address or the
    /// owner posts work.
    pub(super) qp: Option<Qp>,
    pub(super) queued: bool,
    pub(super) timer_at: Option<Instant>,
    pub(super) connect_request: Option<Box<Connect>>,
    pub(super) pkey: PKey,
    pub(super) path_mtu: u8,
    pub(super) ack_timeout: u8,
}

#[derive(Debug)]
pub(super) struct Slots {
    index: u32,
    entropy: Entropy,
    numbers: Numbers,
    drawn: Vec<u32>,
    draw: usize,
    ended: VecDeque<u32>,
    /// Queue pairs by slot. A slot becomes free when the owner polls the event `Closed`.
    slots: Slab<Option<Entry>, u16>,
    by_number: Vec<u16>,
}

impl Slots {
    pub(super) fn new(
        index: u32,
        limit: u16,
        numbers: Numbers,
        entropy: Entropy,
        admitted: bool,
    ) -> Self {
        Self {
            index,
            entropy,
            numbers,
            drawn: Vec::new(),
            draw: if admitted { DRAWN.min(limit.into()) } else { 1 },
            ended: VecDeque::new(),
            slots: Slab::with_limit(limit.into(), Reuse::Oldest),
            by_number: vec![NO_SLOT; SLOTS],
        }
    }

    /// Finds a vacant slot. If new numbers are drawn, `admit` receives the sorted list of all
    /// numbers that the kernel's filter must pass.
    pub(super) fn vacancy(
        &mut self,
        admit: impl FnOnce(&[u32]) -> Result<(), FabricError>,
    ) -> Result<(QpId, u32), FabricError> {
        let id = self.slots.vacant().ok_or(FabricError::Limit {
            what: "queue pairs",
            limit: self.slots.slots() as u64,
        })?;
        if self.drawn.is_empty() {
            self.draw_numbers();
            if let Err(error) = admit(&self.all_numbers()) {
                while self.take_drawn().is_some() {}
                return Err(error);
            }
        }
        let number = self.take_drawn();
        Ok((id.into(), number.expect("where a slot is free, a place is")))
    }

    fn draw_numbers(&mut self) {
        let free = self.by_number.iter().filter(|&&slot| slot == NO_SLOT);
        for _ in 0..self.draw.min(free.count()) {
            let number = self.draw_number();
            self.by_number[number as usize & (SLOTS - 1)] = PROMISED;
            self.drawn.push(self.index << (24 - INDEX_BITS) | number);
        }
    }

    fn take_drawn(&mut self) -> Option<u32> {
        let number = self.drawn.pop()?;
        self.by_number[number as usize & (SLOTS - 1)] = NO_SLOT;
        Some(number)
    }

    pub(super) fn all_numbers(&self) -> Vec<u32> {
        let entries = self.slots.iter().filter_map(|(_, slot)| slot.as_ref());
        let mut all: Vec<u32> = entries.map(|entry| entry.qpn).collect();
        all.extend(self.drawn.iter().chain(&self.ended));
        all.sort_unstable();
        all
    }

    fn draw_number(&mut self) -> u32 {
        let places = || (0..SLOTS).filter(|&low| self.by_number[low] == NO_SLOT);
        let (drawn, free) = (self.entropy.draw() as usize, places().count());
        let low = places().nth((drawn >> GENERATION_BITS) % free);
        let low = low.expect("where a slot is free, a place is");
        let generations =
            (0..1 << GENERATION_BITS).map(|step| drawn.wrapping_add(step) << SLOT_BITS);
        let mut numbers = generations.map(|generation| (generation % NUMBERS) | low);
        let new = numbers.clone().find(|&number| !self.numbers.has(number));
        let number = new.or_else(|| numbers.next()).expect("there are some");
        self.numbers.add(number);
        number as u32
    }

    pub(super) fn insert(&mut self, id: QpId, entry: Entry) {
        self.by_number[entry.qpn as usize & (SLOTS - 1)] = id.slot() as u16;
        let key = self.slots.insert(Some(entry));
        assert_eq!(QpId::from(key), id, "the slot was vacant just now");
    }

    pub(super) fn get(&mut self, id: QpId) -> Option<&mut Entry> {
        self.slots.get_mut(id.into())?.as_mut()
    }

    pub(super) fn by_qpn(&mut self, qpn: u32) -> Option<(QpId, &mut Entry)> {
        let at = self.by_number[qpn as usize & (SLOTS - 1)];
        self.by_slot(at).filter(|(_, entry)| entry.qpn == qpn)
    }

    #[inline]
    pub(super) fn by_slot(&mut self, at: u16) -> Option<(QpId, &mut Entry)> {
        let (key, slot) = self.slots.at_mut(at.into())?;
        slot.as_mut().map(|entry| (key.into(), entry))
    }

    pub(super) fn remove(&mut self, id: QpId) {
        let entry = self.slots.get_mut(id.into()).and_then(Option::take);
        if let Some(entry) = entry {
            self.by_number[entry.qpn as usize & (SLOTS - 1)] = NO_SLOT;
            if self.ended.len() == ENDED {
                self.ended.pop_front();
            }
            self.ended.push_back(entry.qpn);
        }
    }

    pub(super) fn closed_is_reported(&mut self, id: QpId) {
        let closed = self.slots.remove(id.into()).flatten();
        assert!(closed.is_none(), "{id} is reported before it was removed");
    }

    pub(super) fn take_numbers(&mut self) -> Numbers {
        std::mem::take(&mut self.numbers)
    }

    pub(super) fn connections(&self) -> impl Iterator<Item = ConnId> {
        let slots = self.slots.iter();
        slots.filter_map(|(_, slot)| slot.as_ref()?.conn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn slots(index: u32, limit: u16, numbers: Numbers) -> Slots {
        Slots::new(index, limit, numbers, Entropy::default(), true)
    }

    #[test]
    fn numbers_name_the_endpoint_and_nothing_else() {
        let mut seen = HashSet::new();
        let (mut any, mut all) = (0, u32::MAX);
        for _ in 0..64 {
            let (id, qpn) = slots(3, 1024, Numbers::default())
                .vacancy(|_| Ok(()))
                .unwrap();
            assert_eq!(id.slot(), 0);
            assert_eq!(qpn >> (24 - INDEX_BITS), 3);
            seen.insert(qpn);
            (any, all) = (any | qpn, all & qpn);
        }
        let chance = NUMBERS as u32 - 1;
        assert_eq!((any & chance, all & chance), (chance, 0));
        assert!(seen.len() > 60, "{} of 64 differ", seen.len());
    }

    #[test]
    fn numbers_are_long_in_coming_again() {
        let (mut seen, mut next) = (HashSet::new(), Numbers::default());
        for _ in 0..250 {
            let mut slots = slots(1, 3, next);
            for _ in 0..40 {
                let (_, qpn) = slots.vacancy(|_| Ok(())).unwrap();
                assert!(seen.insert(qpn), "{qpn:#x} was another's");
            }
            next = slots.take_numbers();
        }
    }

    #[test]
    fn a_full_endpoint_has_a_number_for_each() {
        let mut slots = slots(1, SLOTS as u16, Numbers::default());
        for at in 0..SLOTS {
            let (_, qpn) = slots.vacancy(|_| Ok(())).unwrap();
            let low = qpn as usize & (SLOTS - 1);
            assert_eq!(slots.by_number[low], NO_SLOT, "queue pair {at}");
            slots.by_number[low] = at as u16;
        }
    }
}
