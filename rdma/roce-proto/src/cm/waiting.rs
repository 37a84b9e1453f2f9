//! Limits for connection requests that wait for the local consumer, or for proof of the peer's
//! address.
//!
//! A source address may be forged until an RTU with the communication id of the REP proves it.
//! Unproven addresses share [`STRANGERS_MAX`] entries. If all are in use, a new request replaces the
//! oldest answered one of the [`Payer`] (an address or an IPv6 /64) with the most, in the network
//! with the most. A genuine peer sends its RTU within a round trip, before a flood replaces it.

use crate::time::Instant;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::IpAddr;
use core::time::Duration;

use cairn_base::address::{Payer, prefix_of};
use cairn_base::allowance::Allowance;

const STRANGERS_MAX: usize = 192;
/// Maximum requests waiting for the consumer, for each unproven address ([`Payer`]). More are
/// dropped.
const UNDECIDED_MAX_OF_STRANGERS: usize = 64;
const WAITING_MAX: usize = 1024;
const KNOWN_MAX: usize = WAITING_MAX - STRANGERS_MAX;
const UNDECIDED_MAX: usize = 128;
const PROVEN_MAX: usize = 4096;
const ANSWERS_MAX: u32 = 256;
const ANSWER_INTERVAL: Duration = Duration::from_millis(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Take,
    Evict(u32),
    Drop,
}

#[derive(Debug)]
struct BacklogEntry {
    id: u32,
    address: IpAddr,
    payer: Payer,
    is_known: bool,
    is_answered: bool,
}

#[derive(Debug, Default)]
pub(super) struct RequestBacklog {
    places: Vec<BacklogEntry>,
    proven: BTreeMap<IpAddr, u64>,
    networks: BTreeMap<IpAddr, BTreeMap<u64, IpAddr>>,
    turn: u64,
    now: Option<Instant>,
    answers: Allowance<Instant>,
}

impl RequestBacklog {
    pub(super) fn set_time(&mut self, now: Instant) {
        self.now = Some(now);
    }

    pub(super) fn knows(&self, address: IpAddr) -> bool {
        self.proven.contains_key(&address.to_canonical())
    }

    pub(super) fn verdict(&self, address: IpAddr) -> Verdict {
        let is_known = self.knows(address);
        let payer = Payer::of(address, is_known);
        let undecided = self.places.iter();
        let undecided = undecided.filter(|place| !place.is_answered && place.payer == payer);
        let (limit, undecided_max) = match is_known {
            true => (KNOWN_MAX, UNDECIDED_MAX),
            false => (STRANGERS_MAX, UNDECIDED_MAX_OF_STRANGERS),
        };
        if undecided.count() >= undecided_max {
            return Verdict::Drop;
        }
        let is_of_kind = |place: &&BacklogEntry| place.is_known == is_known;
        if self.places.iter().filter(is_of_kind).count() < limit {
            return Verdict::Take;
        }
        let victim = self.victim(is_known);
        victim.map_or(Verdict::Drop, |place| Verdict::Evict(place.id))
    }

    /// Returns the answered request that a new request replaces, of an address with the same
    /// `is_known`.
    fn victim(&self, is_known: bool) -> Option<&BacklogEntry> {
        let may_go = |place: &&BacklogEntry| place.is_known == is_known && place.is_answered;
        let network = |place: &BacklogEntry| match is_known {
            true => place.address,
            false => network_of(place.address),
        };
        let mut networks: BTreeMap<IpAddr, usize> = BTreeMap::new();
        let mut payers: BTreeMap<Payer, usize> = BTreeMap::new();
        for place in self.places.iter().filter(may_go) {
            *networks.entry(network(place)).or_default() += 1;
            *payers.entry(place.payer).or_default() += 1;
        }
        let mut most = (0, 0);
        let mut victim = None;
        for place in self.places.iter().filter(may_go) {
            let held = (networks[&network(place)], payers[&place.payer]);
            if held > most {
                (most, victim) = (held, Some(place));
            }
        }
        victim
    }

    pub(super) fn insert(&mut self, id: u32, address: IpAddr) {
        let is_known = self.knows(address);
        self.places.push(BacklogEntry {
            id,
            address,
            payer: Payer::of(address, is_known),
            is_known,
            is_answered: false,
        });
    }

    pub(super) fn answered(&mut self, id: u32) {
        if let Some(place) = self.places.iter_mut().find(|place| place.id == id) {
            place.is_answered = true;
        }
    }

    pub(super) fn remove(&mut self, id: u32) {
        self.places.retain(|place| place.id != id);
    }

    /// Records `address` as proven. If the limit is reached, forgets the oldest address in the
    /// network with the most proven addresses.
    pub(super) fn prove(&mut self, address: IpAddr) {
        let address = address.to_canonical();
        if !self.forget(address) && self.proven.len() >= PROVEN_MAX {
            let oldest = |network: &BTreeMap<u64, IpAddr>| {
                let (turn, address) = network.first_key_value()?;
                Some((network.len(), Reverse(*turn), *address))
            };
            let victim = self.networks.values().filter_map(oldest).max();
            victim.map(|(.., address)| self.forget(address));
        }
        self.turn += 1;
        self.proven.insert(address, self.turn);
        let network = self.networks.entry(network_of(address)).or_default();
        network.insert(self.turn, address);
    }

    fn forget(&mut self, address: IpAddr) -> bool {
        let Some(turn) = self.proven.remove(&address) else {
            return false;
        };
        if let Entry::Occupied(mut network) = self.networks.entry(network_of(address)) {
            network.get_mut().remove(&turn);
            if network.get().is_empty() {
                network.remove();
            }
        }
        true
    }

    pub(super) fn may_answer(&mut self, address: IpAddr) -> bool {
        let Some(now) = self.now.filter(|_| !self.knows(address)) else {
            return true;
        };
        self.answers.take(now, ANSWERS_MAX, ANSWER_INTERVAL)
    }
}

fn network_of(address: IpAddr) -> IpAddr {
    prefix_of(address, 24, 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(network: u8, host: u8) -> IpAddr {
        [192, 0, network, host].into()
    }

    fn arrive(waiting: &mut RequestBacklog, id: u32, address: IpAddr) -> Verdict {
        let verdict = waiting.verdict(address);
        if let Verdict::Evict(evicted) = verdict {
            waiting.remove(evicted);
        }
        if verdict != Verdict::Drop {
            waiting.insert(id, address);
            waiting.answered(id);
        }
        verdict
    }

    #[test]
    fn a_flood_takes_places_from_itself() {
        let mut waiting = RequestBacklog::default();
        assert_eq!(arrive(&mut waiting, 0, address(9, 1)), Verdict::Take);
        for id in 1..10_000 {
            let verdict = arrive(&mut waiting, id, address(2, id as u8));
            assert_ne!(
                verdict,
                Verdict::Evict(0),
                "another network is more crowded"
            );
            assert_ne!(verdict, Verdict::Drop);
        }
        assert_eq!(waiting.places.len(), STRANGERS_MAX);
        assert!(matches!(
            arrive(&mut waiting, 10_000, address(2, 1)),
            Verdict::Evict(_)
        ));
        for id in 10_001..10_100 {
            let verdict = arrive(&mut waiting, id, address(2, id as u8));
            assert_ne!(verdict, Verdict::Evict(10_000));
        }
    }

    #[test]
    fn a_flood_of_many_networks_leaves_a_new_host_its_time() {
        let mut waiting = RequestBacklog::default();
        let mut next: u32 = 0;
        let mut flood = |waiting: &mut RequestBacklog, requests: usize, host: u32| {
            for _ in 0..requests {
                next += 1;
                let network: IpAddr = (0x0a00_0001 + ((next % 600) << 8)).to_be_bytes().into();
                let verdict = arrive(waiting, next, network);
                assert_ne!(verdict, Verdict::Evict(host), "after {requests} at most");
            }
        };
        flood(&mut waiting, 2000, u32::MAX);
        for (round, host) in (1_000_000..1_000_020).enumerate() {
            let first = [9, 10, 200][round % 3];
            let address = [first, 200, round as u8, 1].into();
            assert_ne!(arrive(&mut waiting, host, address), Verdict::Drop);
            flood(&mut waiting, STRANGERS_MAX - 1, host);
            waiting.remove(host);
        }
    }

    #[test]
    fn proven_addresses_of_many_networks_leave_strangers_their_places() {
        let mut waiting = RequestBacklog::default();
        for id in 0..10_000 {
            let network = [10, ((id % 600) >> 8) as u8, id as u8, 1].into();
            waiting.prove(network);
            assert_ne!(arrive(&mut waiting, id, network), Verdict::Drop);
        }
        let host = 1_000_000;
        assert_ne!(arrive(&mut waiting, host, address(2, 1)), Verdict::Drop);
        for id in 0..1000 {
            let network = [10, 0, id as u8, 1].into();
            assert_ne!(arrive(&mut waiting, id, network), Verdict::Evict(host));
        }
        assert!(waiting.places.len() <= WAITING_MAX);
    }

    #[test]
    fn a_claimed_address_takes_places_from_itself() {
        let mut waiting = RequestBacklog::default();
        for id in 0..1000 {
            let verdict = arrive(&mut waiting, id, address(2, 1));
            let own = id.checked_sub(STRANGERS_MAX as u32);
            assert_eq!(verdict, own.map_or(Verdict::Take, Verdict::Evict));
        }
    }

    #[test]
    fn proven_addresses_have_places_of_their_own() {
        let mut waiting = RequestBacklog::default();
        waiting.prove(address(2, 200));
        for id in 0..1000 {
            arrive(&mut waiting, id, address(2, id as u8 & 0x7f));
        }
        for id in 1000..1000 + KNOWN_MAX as u32 {
            assert_eq!(arrive(&mut waiting, id, address(2, 200)), Verdict::Take);
        }
    }

    #[test]
    fn a_request_that_our_consumer_has_keeps_its_place() {
        let mut waiting = RequestBacklog::default();
        for id in 0..STRANGERS_MAX as u32 {
            waiting.insert(id, address(id as u8, 1));
        }
        assert_eq!(waiting.verdict(address(2, 2)), Verdict::Drop);
    }

    #[test]
    fn answers_to_strangers_are_few() {
        let mut waiting = RequestBacklog::default();
        let now = Instant::START;
        let stranger = address(2, 1);
        waiting.set_time(now);
        let given = (0..5000).filter(|_| waiting.may_answer(stranger));
        assert_eq!(given.count() as u32, ANSWERS_MAX);
        waiting.set_time(now + ANSWER_INTERVAL);
        assert!(waiting.may_answer(stranger));
        assert!(!waiting.may_answer(stranger));
        waiting.prove(stranger);
        assert!(waiting.may_answer(stranger), "it is known");
    }

    #[test]
    fn the_longest_ago_is_forgotten() {
        let mut waiting = RequestBacklog::default();
        for number in 0..=PROVEN_MAX as u32 {
            let address: IpAddr = (0x0a00_0000 + number).to_be_bytes().into();
            waiting.prove(address);
        }
        assert!(!waiting.knows([10, 0, 0, 0].into()));
        assert!(waiting.knows([10, 0, 0, 1].into()));
        assert_eq!(waiting.proven.len(), PROVEN_MAX);
    }

    #[test]
    fn a_network_of_proven_addresses_pushes_out_itself() {
        let mut waiting = RequestBacklog::default();
        let of = |network: u16, host: u16| {
            core::net::Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 1, host).into()
        };
        waiting.prove(of(1, 1));
        for number in 0..2 * PROVEN_MAX as u16 {
            waiting.prove(of(2, number));
        }
        assert!(waiting.knows(of(1, 1)) && !waiting.knows(of(1, 2)));
        assert_eq!(waiting.proven.len(), PROVEN_MAX);
        assert_eq!(waiting.networks.len(), 2);
    }

    #[test]
    fn a_claimed_address_leaves_its_neighbours_their_places() {
        let mut waiting = RequestBacklog::default();
        for id in 0..1000 {
            arrive(&mut waiting, id, address(2, 1));
        }
        for id in 1000..1010 {
            arrive(&mut waiting, id, address(2, id as u8));
        }
        for id in 2000..3000 {
            let verdict = arrive(&mut waiting, id, address(2, 1));
            let neighbours = (1000..1010).map(Verdict::Evict);
            assert!(verdict != Verdict::Drop && !neighbours.into_iter().any(|own| own == verdict));
        }
    }
}
