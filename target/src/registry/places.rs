//! How many connections may wait for their Connect, by address and network, and which
//! addresses had an association: for them there are always places.
//!
//! Anyone who reaches a listener can open connections, and each one holds a queue pair
//! until its Connect has come or [`CONNECT_TIMEOUT`](crate::qpair::CONNECT_TIMEOUT) has
//! passed. So a [`Place`] goes with each connection, from its request until its queue
//! pair is no more, and an address, a network and all strangers together have limits. A
//! stranger is an address without an association now or lately. Controllers of the
//! discovery subsystem count as connections without one: that subsystem is open to all.
//!
//! Where strangers have all of their places, a new one takes that of another: the oldest
//! one of the largest holder, which is first a network and then an address in it. A host
//! sends its Connect within a round trip of its connection, so it has used its place long
//! before as many others have come as there are places. Attackers who hold every place,
//! from as many networks as they like, delay no new host.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use cairn_rdma::Clock;
use cairn_rdma::address::{host_of, prefix_of};

use crate::panics;

/// Waiting connections of one stranger. Twice what user-space RoCE lets an address have
/// that was not proven: that provider ends old ones of a flood, and this must not refuse
/// new ones while they end.
pub(crate) const STRANGER_MAX: u32 = 128;
/// Waiting connections of the strangers of one network. As above, of all strangers there.
pub(crate) const NETWORK_MAX: u32 = 384;
/// Waiting connections of all strangers.
pub(crate) const STRANGERS_MAX: u32 = 512;
/// Waiting connections of an address that is known: hosts that connect 128 I/O queues at
/// once, or many at one address that all lost their connections.
pub(crate) const KNOWN_MAX: u32 = 512;
/// How long an address stays known after its last association.
pub(crate) const KNOWN_FOR: Duration = Duration::from_secs(1800);
/// Addresses that are known without an association. Beyond them the one is forgotten whose
/// associations lasted the shortest: who comes and goes pushes out no host that stayed.
pub(crate) const FORMER_MAX: usize = 1024;

/// An address has as many waiting connections as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full(u32);

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} connections of this address wait for their Connect, which is the most: stop what \
             opens connections and sends no Connect, or exclude its addresses by the listener's \
             allowed_addresses",
            self.0
        )
    }
}

/// A connection whose place another one took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Evicted {
    /// Its place.
    pub(crate) place: PlaceId,
    /// The reactor that it was given to.
    pub(crate) reactor: usize,
}

/// Tells places apart, in the order of their beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PlaceId(u64);

/// The places of one target.
#[derive(Debug)]
pub(crate) struct Places {
    clock: Clock,
    state: Mutex<State>,
}

/// A connection's place. Dropped, it is free.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    id: PlaceId,
    host: IpAddr,
    is_associated: bool,
}

#[derive(Debug, Default)]
struct State {
    hosts: HashMap<IpAddr, Host>,
    /// All connections that wait, the oldest first.
    waiting: BTreeMap<PlaceId, Waiting>,
    taken: u64,
    /// Waiting connections of strangers, by network.
    networks: HashMap<IpAddr, u32>,
    /// All of them.
    strangers: u32,
}

/// A connection that waits for its Connect.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    host: IpAddr,
    /// Once it was given to one.
    reactor: Option<usize>,
}

/// An address, or an IPv6 network of a host.
#[derive(Debug, Clone, Copy)]
struct Host {
    /// Connections that wait for their Connect.
    waiting: u32,
    /// Connections with an association.
    associated: u32,
    /// Since when there was one.
    since: Instant,
    /// How long there was one before.
    lasted: Duration,
    /// When the last one ended.
    left: Option<Instant>,
    /// Whether those that wait count as a known host's.
    is_known: bool,
}

impl Places {
    /// All of them free.
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            state: Mutex::default(),
        }
    }

    /// A place for a connection of this address, and the connection that loses its own for
    /// that. `is_short`: there are no more queue pairs for strangers.
    pub(crate) fn take(
        self: &Arc<Self>,
        address: IpAddr,
        is_short: bool,
    ) -> Result<(Place, Option<Evicted>), Full> {
        let host = host_of(address);
        let (id, evicted) = self.lock().take(host, is_short, self.clock.now())?;
        let place = Place {
            places: Arc::clone(self),
            id,
            host,
            is_associated: false,
        };
        Ok((place, evicted))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        panics::intact(self.state.lock(), "the counts of connections by address")
    }
}

impl Place {
    /// Whether the address is known.
    pub(crate) fn is_known(&self) -> bool {
        let state = self.places.lock();
        state.hosts.get(&self.host).is_some_and(|own| own.is_known)
    }

    /// Which one it is.
    pub(crate) fn id(&self) -> PlaceId {
        self.id
    }

    /// The connection goes to this reactor.
    pub(crate) fn assign(&self, reactor: usize) {
        if let Some(waiting) = self.places.lock().waiting.get_mut(&self.id) {
            waiting.reactor = Some(reactor);
        }
    }

    /// Whether the connection is a queue of a subsystem with namespaces.
    pub(crate) fn is_associated(&self) -> bool {
        self.is_associated
    }

    /// The connection has become a queue of a subsystem with namespaces.
    pub(crate) fn associate(&mut self) {
        if !std::mem::replace(&mut self.is_associated, true) {
            let now = self.places.clock.now();
            self.places.lock().associate(self.id, self.host, now);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let now = self.places.clock.now();
        self.places
            .lock()
            .give_back(self.id, self.host, self.is_associated, now);
    }
}

impl State {
    fn take(
        &mut self,
        address: IpAddr,
        is_short: bool,
        now: Instant,
    ) -> Result<(PlaceId, Option<Evicted>), Full> {
        self.recount(address, now);
        let host = self.hosts.get(&address).copied();
        let waiting = host.map_or(0, |host| host.waiting);
        let is_known = host.is_some_and(|host| host.is_known);
        let limit = if is_known { KNOWN_MAX } else { STRANGER_MAX };
        if waiting >= limit {
            return Err(Full(limit));
        }
        let network = network_of(address);
        let of_network = self.networks.get(&network).copied().unwrap_or(0);
        let evicted = if is_known {
            None
        } else if of_network >= NETWORK_MAX {
            self.evict_for(address, |other| network_of(other) == network)
        } else if self.strangers >= STRANGERS_MAX || is_short {
            self.evict_for(address, |_| true)
        } else {
            None
        };
        let id = PlaceId(self.taken);
        self.taken += 1;
        let host = address;
        let reactor = None;
        self.waiting.insert(id, Waiting { host, reactor });
        let host = self.host_or_new(address, now);
        host.waiting += 1;
        if !host.is_known {
            self.count_strangers(address, 0, 1);
        }
        Ok((id, evicted))
    }

    /// Takes the place of a stranger for one of this address: the oldest one of the address
    /// that has most, of the network that has most. The new one counts, so an address that
    /// asks again and again loses its own.
    fn evict_for(&mut self, address: IpAddr, may_go: impl Fn(IpAddr) -> bool) -> Option<Evicted> {
        let own = network_of(address);
        let mut victim: Option<((u32, u32), PlaceId)> = None;
        for (&id, waiting) in &self.waiting {
            let host = self.hosts[&waiting.host];
            if host.is_known || !may_go(waiting.host) {
                continue;
            }
            let network = network_of(waiting.host);
            let of_network = self.networks[&network] + u32::from(network == own);
            let of_address = host.waiting + u32::from(waiting.host == address);
            let held = (of_network, of_address);
            if victim.is_none_or(|(most, _)| held > most) {
                victim = Some((held, id));
            }
        }
        let (_, place) = victim?;
        let waiting = self.end_waiting(place)?;
        self.forget_if_nothing(waiting.host);
        let reactor = waiting.reactor?;
        Some(Evicted { place, reactor })
    }

    /// A connection waits no more. `None`: another one took its place before.
    fn end_waiting(&mut self, id: PlaceId) -> Option<Waiting> {
        let waiting = self.waiting.remove(&id)?;
        let host = self.host(waiting.host);
        host.waiting -= 1;
        if !host.is_known {
            self.count_strangers(waiting.host, 1, 0);
        }
        Some(waiting)
    }

    fn associate(&mut self, id: PlaceId, address: IpAddr, now: Instant) {
        // Also if another one took its place meanwhile: this is a host.
        self.end_waiting(id);
        let host = self.host_or_new(address, now);
        if host.associated == 0 {
            host.since = now;
        }
        host.associated += 1;
        self.recount(address, now);
    }

    fn give_back(&mut self, id: PlaceId, address: IpAddr, is_associated: bool, now: Instant) {
        if is_associated {
            let host = self.host(address);
            host.associated -= 1;
            if host.associated == 0 {
                host.lasted += now.saturating_duration_since(host.since);
                host.left = Some(now);
                self.forget_if_many(now);
            }
        } else {
            self.end_waiting(id);
        }
        self.recount(address, now);
    }

    fn host_or_new(&mut self, address: IpAddr, now: Instant) -> &mut Host {
        self.hosts.entry(address).or_insert(Host {
            waiting: 0,
            associated: 0,
            since: now,
            lasted: Duration::ZERO,
            left: None,
            is_known: false,
        })
    }

    /// Forgets an address of which there is nothing to know.
    fn forget_if_nothing(&mut self, address: IpAddr) {
        let is_nothing = |host: &Host| host.waiting == 0 && !host.is_known;
        if self.hosts.get(&address).is_some_and(is_nothing) {
            self.hosts.remove(&address);
        }
    }

    fn host(&mut self, address: IpAddr) -> &mut Host {
        let host = self.hosts.get_mut(&address);
        host.expect("an address with a place has an entry")
    }

    /// Counts an address's connections as those of a stranger or a known host, as it is
    /// now, and forgets one of which there is nothing to know.
    fn recount(&mut self, address: IpAddr, now: Instant) {
        let Some(host) = self.hosts.get_mut(&address) else {
            return;
        };
        let lately = |left: Instant| now.saturating_duration_since(left) < KNOWN_FOR;
        let is_known = host.associated > 0 || host.left.is_some_and(lately);
        let was_known = std::mem::replace(&mut host.is_known, is_known);
        let waiting = host.waiting;
        if !is_known && waiting == 0 {
            self.hosts.remove(&address);
        }
        match (was_known, is_known) {
            (true, false) => self.count_strangers(address, 0, waiting),
            (false, true) => self.count_strangers(address, waiting, 0),
            _ => {}
        }
    }

    fn count_strangers(&mut self, address: IpAddr, less: u32, more: u32) {
        self.strangers = self.strangers - less + more;
        let network = network_of(address);
        let of_network = self.networks.entry(network).or_default();
        *of_network = *of_network - less + more;
        if *of_network == 0 {
            self.networks.remove(&network);
        }
    }

    /// Keeps the number of addresses that are known without an association.
    fn forget_if_many(&mut self, now: Instant) {
        let is_former = |host: &Host| host.associated == 0 && host.left.is_some();
        let former = || self.hosts.iter().filter(|(_, host)| is_former(host));
        if former().count() <= FORMER_MAX {
            return;
        }
        let is_over = |host: &Host| {
            let left = host.left.unwrap_or(now);
            now.saturating_duration_since(left) >= KNOWN_FOR
        };
        let mut gone: Vec<IpAddr> = former()
            .filter(|(_, host)| is_over(host))
            .map(|(address, _)| *address)
            .collect();
        if gone.is_empty() {
            // The same of several in a simulation, too.
            let shortest =
                former().min_by_key(|(address, host)| (host.lasted, host.left, **address));
            gone.extend(shortest.map(|(address, _)| *address));
        }
        for address in gone {
            self.host(address).left = None;
            self.recount(address, now);
        }
    }
}

/// What one owner has, mostly: an IPv4 /24, an IPv6 /48.
fn network_of(address: IpAddr) -> IpAddr {
    prefix_of(address, 24, 48)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Door {
        state: State,
        now: Instant,
        /// The places that were taken, by address.
        taken: Vec<(IpAddr, PlaceId)>,
        evicted: Vec<PlaceId>,
    }

    impl Door {
        fn new() -> Self {
            Self {
                state: State::default(),
                now: Instant::now(),
                taken: Vec::new(),
                evicted: Vec::new(),
            }
        }

        fn take(&mut self, address: &str) -> Result<PlaceId, Full> {
            self.take_of(address.parse().unwrap(), false)
        }

        fn take_of(&mut self, address: IpAddr, is_short: bool) -> Result<PlaceId, Full> {
            let host = host_of(address);
            let (id, evicted) = self.state.take(host, is_short, self.now)?;
            let waiting = self.state.waiting.get_mut(&id);
            waiting.unwrap().reactor = Some(3);
            if let Some(Evicted { place, reactor }) = evicted {
                assert_eq!(reactor, 3);
                self.evicted.push(place);
            }
            self.taken.push((host, id));
            Ok(id)
        }

        /// Takes as many as there are.
        fn fill(&mut self, address: &str) -> (u32, Full) {
            for taken in 0..=KNOWN_MAX {
                if let Err(full) = self.take(address) {
                    return (taken, full);
                }
            }
            panic!("an address has a limit");
        }

        /// The oldest place of an address.
        fn oldest(&mut self, address: &str) -> (IpAddr, PlaceId) {
            let host = host_of(address.parse().unwrap());
            let at = self.taken.iter().position(|(other, _)| *other == host);
            self.taken.remove(at.unwrap())
        }

        fn give_back(&mut self, address: &str) {
            let (host, id) = self.oldest(address);
            self.state.give_back(id, host, false, self.now);
        }

        /// Returns the host and its place.
        fn associate(&mut self, address: &str) -> (IpAddr, PlaceId) {
            let (host, id) = self.oldest(address);
            self.state.associate(id, host, self.now);
            (host, id)
        }

        /// Is associated for that long.
        fn visit(&mut self, address: &str, time: Duration) {
            self.take(address).unwrap();
            let (host, id) = self.associate(address);
            self.now += time;
            self.state.give_back(id, host, true, self.now);
        }
    }

    /// An address of a /24 network of its own.
    fn of_network(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits((10 << 24) + (number << 8) + 1).into()
    }

    #[test]
    fn an_address_has_a_limit_and_networks_take_places_from_themselves() {
        let mut door = Door::new();
        let full = Full(STRANGER_MAX);
        assert_eq!(door.fill("192.0.2.1"), (STRANGER_MAX, full));
        assert_eq!(door.fill("::ffff:192.0.2.1"), (0, full), "the same host");
        assert_eq!(door.fill("192.0.2.2"), (STRANGER_MAX, full));
        assert_eq!(door.fill("192.0.2.3"), (STRANGER_MAX, full));
        assert_eq!(door.evicted, []);
        let first = door.taken[0].1;
        door.take("192.0.2.4").unwrap();
        assert_eq!(door.evicted, [first], "the network has all that it may");
        assert_eq!(door.state.networks.len(), 1);
        assert_eq!(door.state.strangers, NETWORK_MAX);
    }

    /// What strangers of many networks hold keeps no new host out, and what they ask for
    /// next does not take its place before it has had the time to use it.
    #[test]
    fn strangers_of_many_networks_keep_no_new_host_out() {
        const NETWORKS: u32 = 600;
        let mut door = Door::new();
        for number in 0..4 * NETWORKS {
            door.take_of(of_network(number % NETWORKS), false).unwrap();
        }
        assert_eq!(door.state.strangers, STRANGERS_MAX);
        for round in 0..20 {
            let host = format!("192.0.{round}.1");
            let place = door.take(&host).unwrap();
            let asked = door.evicted.len();
            for number in 0..STRANGERS_MAX - 1 {
                let number = (number * 7 + round) % NETWORKS;
                door.take_of(of_network(number), false).unwrap();
                let gone = door.evicted.contains(&place);
                assert!(
                    !gone,
                    "after {} in round {round}",
                    door.evicted.len() - asked
                );
            }
            assert_eq!(door.state.strangers, STRANGERS_MAX);
            door.associate(&host);
        }
        assert_eq!(door.state.waiting.len() as u32, door.state.strangers);
    }

    /// Those who ask again lose their own places, not those of others.
    #[test]
    fn who_asks_again_loses_its_own_place() {
        let mut door = Door::new();
        let host = door.take("192.0.2.1").unwrap();
        for number in 0..STRANGERS_MAX - 1 {
            door.take_of(of_network(number), false).unwrap();
        }
        for _ in 0..10_000 {
            door.take_of(of_network(7), false).unwrap();
        }
        assert!(!door.evicted.contains(&host));
    }

    #[test]
    fn a_stranger_takes_anothers_place_where_queue_pairs_are_short() {
        let mut door = Door::new();
        door.take_of(of_network(1), true).unwrap();
        assert_eq!(door.evicted, [], "there is none to take");
        let first = door.taken[0].1;
        door.take_of(of_network(2), true).unwrap();
        assert_eq!(door.evicted, [first]);
    }

    /// A Connect that comes as its place is taken makes a host.
    #[test]
    fn a_place_that_was_taken_may_be_used_or_given_back() {
        let mut door = Door::new();
        door.take("192.0.2.1").unwrap();
        door.take_of(of_network(1), true).unwrap();
        let (host, id) = door.associate("192.0.2.1");
        assert!(door.state.hosts[&host].is_known);
        door.state.give_back(id, host, true, door.now);
        let other = door.taken[0];
        door.take_of(of_network(2), true).unwrap();
        assert_eq!(door.evicted.last(), Some(&other.1));
        door.state.give_back(other.1, other.0, false, door.now);
        assert_eq!(door.state.strangers, 1);
        assert_eq!(door.state.waiting.len(), 1);
    }

    #[test]
    fn hosts_that_were_here_have_places_whatever_strangers_take() {
        let mut door = Door::new();
        door.visit("192.0.2.1", Duration::from_secs(1));
        for number in 0..4 * STRANGER_MAX {
            door.take(&format!("192.0.2.{}", 2 + number % 4)).unwrap();
        }
        for number in 0..600 {
            door.take_of(of_network(number), false).unwrap();
        }
        door.evicted.clear();
        let full = Full(KNOWN_MAX);
        assert_eq!(door.fill("192.0.2.1"), (KNOWN_MAX, full));
        assert_eq!(door.evicted, [], "they have places of their own");
    }

    #[test]
    fn an_address_is_known_for_a_while_after_its_association() {
        let mut door = Door::new();
        door.take("192.0.2.1").unwrap();
        door.take("192.0.2.1").unwrap();
        assert_eq!(door.state.strangers, 2);
        let (host, id) = door.associate("192.0.2.1");
        assert_eq!((door.state.strangers, door.state.networks.len()), (0, 0));
        door.now += 2 * KNOWN_FOR;
        assert_eq!(door.fill("192.0.2.1").0, KNOWN_MAX - 1);
        door.state.give_back(id, host, true, door.now);
        door.now += KNOWN_FOR;
        assert_eq!(door.fill("192.0.2.1"), (0, Full(STRANGER_MAX)));
        assert_eq!(door.state.strangers, KNOWN_MAX);
        for _ in 0..KNOWN_MAX {
            door.give_back("192.0.2.1");
        }
        assert!(door.state.hosts.is_empty() && door.state.networks.is_empty());
        assert_eq!(door.state.strangers, 0);
    }

    #[test]
    fn who_comes_and_goes_pushes_out_no_host_that_stayed() {
        let mut door = Door::new();
        door.visit("192.0.2.1", Duration::from_secs(60));
        door.take("192.0.2.2").unwrap();
        door.associate("192.0.2.2");
        let of = |number: usize| format!("10.{}.{}.1", number >> 8, number & 0xff);
        for number in 0..2 * FORMER_MAX {
            door.visit(&of(number), Duration::from_millis(1));
        }
        let knows = |address: String| {
            let host = door.state.hosts.get(&address.parse().unwrap());
            host.is_some_and(|host| host.is_known)
        };
        assert!(knows("192.0.2.1".into()) && knows("192.0.2.2".into()));
        assert_eq!(door.state.hosts.len(), FORMER_MAX + 1);
        assert!(!knows(of(0)) && knows(of(2 * FORMER_MAX - 1)));
    }
}
