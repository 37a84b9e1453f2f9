//! Requests that wait for our consumer, or for proof of their peers' addresses.
//!
//! A datagram's source address is a claim. It is proven when the peer answers what was
//! sent there: by an RTU, or a packet for the queue pair that the REP named. Until then
//! a request takes a place here, and places are few. So that strangers who claim many
//! addresses keep no host out, a new request takes the place of the oldest one of the
//! network with most places, the oldest of all where several have as many. A real peer
//! answers within a round trip, long before as many requests have come as there are
//! places. Proven addresses have places of their own, so they take none of the others.

use crate::time::Instant;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use cairn_rdma::address::{host_of, prefix_of};
use cairn_rdma::allowance::Allowance;

/// Requests of addresses that were never proven.
const STRANGERS_MAX: usize = 192;
/// Requests of one address that was never proven.
const STRANGERS_MAX_PER_PEER: usize = 64;
/// Requests in all, those of strangers and of proven addresses.
const WAITING_MAX: usize = 1024;
/// Requests of addresses that were proven.
const KNOWN_MAX: usize = WAITING_MAX - STRANGERS_MAX;
/// Requests of one address.
const WAITING_MAX_PER_PEER: usize = 128;
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
    /// The address was proven before.
    is_known: bool,
    /// Our consumer has decided: it waits for the peer alone.
    is_answered: bool,
}

#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// In the order of their arrival.
    places: Vec<Place>,
    /// Addresses, of IPv6 networks, that were proven, and in which turn.
    proven: BTreeMap<IpAddr, u64>,
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

    /// Whether this address, or with IPv6 its network, is proven.
    pub(super) fn knows(&self, address: IpAddr) -> bool {
        self.proven.contains_key(&host_of(address))
    }

    pub(super) fn verdict(&self, address: IpAddr) -> Verdict {
        let is_known = self.knows(address);
        let of_address = self.places.iter().filter(|place| place.address == address);
        let limit = if is_known {
            WAITING_MAX_PER_PEER
        } else {
            STRANGERS_MAX_PER_PEER
        };
        if of_address.count() >= limit {
            return self.evict(|place| place.address == address);
        }
        let is_of_kind = |place: &&Place| place.is_known == is_known;
        let limit = if is_known { KNOWN_MAX } else { STRANGERS_MAX };
        if self.places.iter().filter(is_of_kind).count() >= limit {
            let crowded = self.most_crowded(is_known);
            let may_go = |place: &Place| {
                place.is_known == is_known
                    && crowded.binary_search(&network_of(place.address)).is_ok()
            };
            return self.evict(may_go);
        }
        Verdict::Take
    }

    fn evict(&self, may_go: impl Fn(&Place) -> bool) -> Verdict {
        let mut places = self.places.iter();
        let oldest = places.find(|place| place.is_answered && may_go(place));
        oldest.map_or(Verdict::Drop, |place| Verdict::Evict(place.id))
    }

    /// The networks that have most places of a kind that could be lost, sorted.
    fn most_crowded(&self, is_known: bool) -> Vec<IpAddr> {
        let mut count: BTreeMap<IpAddr, usize> = BTreeMap::new();
        let may_go = |place: &&Place| place.is_known == is_known && place.is_answered;
        for place in self.places.iter().filter(may_go) {
            *count.entry(network_of(place.address)).or_default() += 1;
        }
        let most = count.values().copied().max();
        count.retain(|_, count| Some(*count) == most);
        count.into_keys().collect()
    }

    pub(super) fn insert(&mut self, id: u32, address: IpAddr) {
        self.places.push(Place {
            id,
            address,
            is_known: self.knows(address),
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

    /// The peer has answered what was sent to its address.
    pub(super) fn prove(&mut self, address: IpAddr) {
        let address = host_of(address);
        if self.proven.len() >= PROVEN_MAX && !self.proven.contains_key(&address) {
            let oldest = self.proven.iter().min_by_key(|&(_, turn)| turn);
            let oldest = oldest.map(|(address, _)| *address);
            oldest.map(|oldest| self.proven.remove(&oldest));
        }
        self.turn += 1;
        self.proven.insert(address, self.turn);
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
            let own = id.checked_sub(STRANGERS_MAX_PER_PEER as u32);
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
        for id in 1000..1000 + WAITING_MAX_PER_PEER as u32 {
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
}
