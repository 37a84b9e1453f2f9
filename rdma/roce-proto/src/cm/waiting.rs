//! Requests that wait for our consumer, or for proof of their peers' addresses.
//!
//! A datagram's source address is a claim. It is proven when the peer answers what was
//! sent there: by an RTU with the number that the REP named. Until then
//! a request takes a place here, and places are few. So that strangers who claim many
//! addresses keep no host out, a new request takes the place of another one: the oldest one of the
//! [`Payer`] with most places in the network with most. A real peer
//! answers within a round trip, long before as many requests have come as there are
//! places. Proven addresses have places of their own, so they take none of the others, and lose none to
//! neighbours: there the oldest request of the address with most goes.

use crate::time::Instant;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::IpAddr;
use core::time::Duration;

use cairn_rdma::address::{Payer, prefix_of};
use cairn_rdma::allowance::Allowance;

/// Requests of addresses that were never proven.
const STRANGERS_MAX: usize = 192;
/// Requests of strangers that pay together and that our consumer has not decided on: it decides at its
/// own pace, and keeps the requests until then.
const UNDECIDED_MAX_OF_STRANGERS: usize = 64;
/// Requests in all, those of strangers and of proven addresses.
const WAITING_MAX: usize = 1024;
/// Requests of addresses that were proven.
const KNOWN_MAX: usize = WAITING_MAX - STRANGERS_MAX;
/// Requests of an address that was proven and that our consumer has not decided on.
const UNDECIDED_MAX: usize = 128;
/// Addresses that are remembered as proven, the latest ones.
const PROVEN_MAX: usize = 4096;
/// Answers to strangers at once, and time until there is another one: such answers go
/// to the address that was claimed, whose owner may have sent nothing.
const ANSWERS_MAX: u32 = 256;
const ANSWER_INTERVAL: Duration = Duration::from_millis(2);

/// What to do about a new request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It has a place.
    Take,
    /// It has a place once this one has lost its own.
    Evict(u32),
    /// There is none.
    Drop,
}

#[derive(Debug)]
struct Place {
    id: u32,
    address: IpAddr,
    payer: Payer,
    /// The address was proven before.
    is_known: bool,
    /// Our consumer has decided: it waits for the peer alone.
    is_answered: bool,
}

#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// In the order of their arrival.
    places: Vec<Place>,
    /// Addresses that were proven, and in which turn.
    proven: BTreeMap<IpAddr, u64>,
    /// The same by network and turn.
    networks: BTreeMap<IpAddr, BTreeMap<u64, IpAddr>>,
    turn: u64,
    /// When a message last came.
    now: Option<Instant>,
    answers: Allowance<Instant>,
}

impl Waiting {
    /// A message has come.
    pub(super) fn set_time(&mut self, now: Instant) {
        self.now = Some(now);
    }

    /// Whether this address is proven.
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
        let is_of_kind = |place: &&Place| place.is_known == is_known;
        if self.places.iter().filter(is_of_kind).count() < limit {
            return Verdict::Take;
        }
        let victim = self.victim(is_known);
        victim.map_or(Verdict::Drop, |place| Verdict::Evict(place.id))
    }

    /// The oldest place of the payer with most in the network with most, of those that could be lost;
    /// the oldest where several have as many. Hosts compete by their addresses alone.
    fn victim(&self, is_known: bool) -> Option<&Place> {
        let may_go = |place: &&Place| place.is_known == is_known && place.is_answered;
        let network = |place: &Place| match is_known {
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
        self.places.push(Place {
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

    /// The peer has answered what was sent to its address. Beyond the limit the address is forgotten that
    /// was proven the longest ago in the network with most of them.
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

    /// Forgets a proven address; whether it was one.
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

    /// Whether to answer what came from this address and belongs to no connection.
    pub(super) fn may_answer(&mut self, address: IpAddr) -> bool {
        let Some(now) = self.now.filter(|_| !self.knows(address)) else {
            return true;
        };
        self.answers.take(now, ANSWERS_MAX, ANSWER_INTERVAL)
    }
}

/// The /24 network of an IPv4 address, the /64 network of an IPv6 address.
fn network_of(address: IpAddr) -> IpAddr {
    prefix_of(address, 24, 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(network: u8, host: u8) -> IpAddr {
        [192, 0, network, host].into()
    }

    fn arrive(waiting: &mut Waiting, id: u32, address: IpAddr) -> Verdict {
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
        let mut waiting = Waiting::default();
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
        // A request that comes now finds a place, and keeps it while others come and go.
        assert!(matches!(
            arrive(&mut waiting, 10_000, address(2, 1)),
            Verdict::Evict(_)
        ));
        for id in 10_001..10_100 {
            let verdict = arrive(&mut waiting, id, address(2, id as u8));
            assert_ne!(verdict, Verdict::Evict(10_000));
        }
    }

    /// Claimed addresses of 600 networks keep asking. A host of another network has a place
    /// until nearly as many others have come as there are places.
    #[test]
    fn a_flood_of_many_networks_leaves_a_new_host_its_time() {
        let mut waiting = Waiting::default();
        let mut next: u32 = 0;
        let mut flood = |waiting: &mut Waiting, requests: usize, host: u32| {
            for _ in 0..requests {
                next += 1;
                let network: IpAddr = (0x0a00_0001 + ((next % 600) << 8)).to_be_bytes().into();
                let verdict = arrive(waiting, next, network);
                assert_ne!(verdict, Verdict::Evict(host), "after {requests} at most");
            }
        };
        flood(&mut waiting, 2000, u32::MAX);
        for (round, host) in (1_000_000..1_000_020).enumerate() {
            // Before, between and behind the networks of the flood.
            let first = [9, 10, 200][round % 3];
            let address = [first, 200, round as u8, 1].into();
            assert_ne!(arrive(&mut waiting, host, address), Verdict::Drop);
            flood(&mut waiting, STRANGERS_MAX - 1, host);
            waiting.remove(host);
        }
    }

    /// So do addresses that were proven, which open connections and do not confirm them.
    #[test]
    fn proven_addresses_of_many_networks_leave_strangers_their_places() {
        let mut waiting = Waiting::default();
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
        let mut waiting = Waiting::default();
        for id in 0..1000 {
            let verdict = arrive(&mut waiting, id, address(2, 1));
            let own = id.checked_sub(STRANGERS_MAX as u32);
            assert_eq!(verdict, own.map_or(Verdict::Take, Verdict::Evict));
        }
    }

    #[test]
    fn proven_addresses_have_places_of_their_own() {
        let mut waiting = Waiting::default();
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
        let mut waiting = Waiting::default();
        for id in 0..STRANGERS_MAX as u32 {
            waiting.insert(id, address(id as u8, 1));
        }
        assert_eq!(waiting.verdict(address(2, 2)), Verdict::Drop);
    }

    #[test]
    fn answers_to_strangers_are_few() {
        let mut waiting = Waiting::default();
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
        let mut waiting = Waiting::default();
        for number in 0..=PROVEN_MAX as u32 {
            let address: IpAddr = (0x0a00_0000 + number).to_be_bytes().into();
            waiting.prove(address);
        }
        assert!(!waiting.knows([10, 0, 0, 0].into()));
        assert!(waiting.knows([10, 0, 0, 1].into()));
        assert_eq!(waiting.proven.len(), PROVEN_MAX);
    }

    /// A stranger with all addresses of an IPv6 /64 proves them one by one: no host is forgotten for that.
    #[test]
    fn a_network_of_proven_addresses_pushes_out_itself() {
        let mut waiting = Waiting::default();
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

    /// A flood in the name of one address, of a /24 or a /64, leaves its neighbours their places.
    #[test]
    fn a_claimed_address_leaves_its_neighbours_their_places() {
        let mut waiting = Waiting::default();
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
