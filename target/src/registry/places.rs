//! How many connections may wait for their Connect, by address and network, and which
//! addresses had an association: for them there are always places.
//!
//! Anyone who reaches a listener can open connections, and each one holds a queue pair
//! until its Connect has come or [`CONNECT_TIMEOUT`](crate::qpair::CONNECT_TIMEOUT) has
//! passed. So a [`Place`] goes with each connection, from its request until its queue
//! pair is no more, and an address, a network and all strangers together have limits. A
//! stranger is an address without an association now or lately. Controllers of the
//! discovery subsystem count as connections without one: that subsystem is open to all.

use std::collections::HashMap;
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

/// Which limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// That of an address.
    Address(u32),
    /// That of a network.
    Network,
    /// That of all strangers.
    Strangers,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remedy = "stop what opens connections and sends no Connect, or exclude its \
                      addresses by the listener's allowed_addresses";
        match self {
            Self::Address(limit) => write!(
                f,
                "{limit} connections of this address wait for their Connect, which is the most: \
                 {remedy}"
            ),
            Self::Network => write!(
                f,
                "{NETWORK_MAX} connections of this network (/24, IPv6: /48) wait for their \
                 Connect, which is the most for addresses without an association: {remedy}"
            ),
            Self::Strangers => write!(
                f,
                "{STRANGERS_MAX} connections of addresses without an association wait for their \
                 Connect, which is the most: {remedy}"
            ),
        }
    }
}

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
    host: IpAddr,
    is_associated: bool,
}

#[derive(Debug, Default)]
struct State {
    hosts: HashMap<IpAddr, Host>,
    /// Waiting connections of strangers, by network.
    networks: HashMap<IpAddr, u32>,
    /// All of them.
    strangers: u32,
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

    /// A place for a connection of this address.
    pub(crate) fn take(self: &Arc<Self>, address: IpAddr) -> Result<Place, Full> {
        let host = host_of(address);
        self.lock().take(host, self.clock.now())?;
        Ok(Place {
            places: Arc::clone(self),
            host,
            is_associated: false,
        })
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

    /// The connection has become a queue of a subsystem with namespaces.
    pub(crate) fn associate(&mut self) {
        if !std::mem::replace(&mut self.is_associated, true) {
            let now = self.places.clock.now();
            self.places.lock().associate(self.host, now);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let now = self.places.clock.now();
        self.places
            .lock()
            .give_back(self.host, self.is_associated, now);
    }
}

impl State {
    fn take(&mut self, address: IpAddr, now: Instant) -> Result<(), Full> {
        self.recount(address, now);
        let host = self.hosts.get(&address).copied();
        let waiting = host.map_or(0, |host| host.waiting);
        if host.is_some_and(|host| host.is_known) {
            if waiting >= KNOWN_MAX {
                return Err(Full::Address(KNOWN_MAX));
            }
        } else if waiting >= STRANGER_MAX {
            return Err(Full::Address(STRANGER_MAX));
        } else if self.networks.get(&network_of(address)) >= Some(&NETWORK_MAX) {
            return Err(Full::Network);
        } else if self.strangers >= STRANGERS_MAX {
            return Err(Full::Strangers);
        }
        let host = self.hosts.entry(address).or_insert(Host {
            waiting: 0,
            associated: 0,
            since: now,
            lasted: Duration::ZERO,
            left: None,
            is_known: false,
        });
        host.waiting += 1;
        if !host.is_known {
            self.count_strangers(address, 0, 1);
        }
        Ok(())
    }

    fn associate(&mut self, address: IpAddr, now: Instant) {
        let host = self.host(address);
        host.waiting -= 1;
        if host.associated == 0 {
            host.since = now;
        }
        host.associated += 1;
        if !host.is_known {
            self.count_strangers(address, 1, 0);
        }
        self.recount(address, now);
    }

    fn give_back(&mut self, address: IpAddr, is_associated: bool, now: Instant) {
        let host = self.host(address);
        if is_associated {
            host.associated -= 1;
            if host.associated == 0 {
                host.lasted += now.saturating_duration_since(host.since);
                host.left = Some(now);
                self.forget_if_many(now);
            }
        } else {
            host.waiting -= 1;
            if !host.is_known {
                self.count_strangers(address, 1, 0);
            }
        }
        self.recount(address, now);
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
    }

    impl Door {
        fn new() -> Self {
            Self {
                state: State::default(),
                now: Instant::now(),
            }
        }

        fn take(&mut self, address: &str) -> Result<(), Full> {
            self.state.take(host_of(address.parse().unwrap()), self.now)
        }

        /// Takes as many as there are.
        fn fill(&mut self, address: &str) -> (u32, Full) {
            let mut taken = 0;
            loop {
                match self.take(address) {
                    Ok(()) => taken += 1,
                    Err(full) => return (taken, full),
                }
            }
        }

        fn give_back(&mut self, address: &str, is_associated: bool) {
            let host = host_of(address.parse().unwrap());
            self.state.give_back(host, is_associated, self.now);
        }

        fn associate(&mut self, address: &str) {
            let host = host_of(address.parse().unwrap());
            self.state.associate(host, self.now);
        }

        /// Is associated for that long.
        fn visit(&mut self, address: &str, time: Duration) {
            self.take(address).unwrap();
            self.associate(address);
            self.now += time;
            self.give_back(address, true);
        }
    }

    #[test]
    fn addresses_networks_and_all_strangers_have_limits() {
        let mut door = Door::new();
        let full = Full::Address(STRANGER_MAX);
        assert_eq!(door.fill("192.0.2.1"), (STRANGER_MAX, full));
        assert_eq!(door.fill("::ffff:192.0.2.1"), (0, full), "the same host");
        assert_eq!(door.fill("192.0.2.2"), (STRANGER_MAX, full));
        assert_eq!(door.fill("192.0.2.3"), (STRANGER_MAX, full));
        assert_eq!(door.fill("192.0.2.4"), (0, Full::Network));
        door.take("192.0.3.1").unwrap();
        assert_eq!(door.fill("2001:db8:0:1::1"), (127, Full::Strangers));
        door.give_back("192.0.2.1", false);
        assert_eq!(
            door.fill("2001:db8:0:1:f::2"),
            (1, Full::Address(STRANGER_MAX))
        );
        assert_eq!(door.fill("2001:db8:0:2::1"), (0, Full::Strangers));
    }

    #[test]
    fn hosts_that_were_here_have_places_whatever_strangers_take() {
        let mut door = Door::new();
        door.visit("192.0.2.1", Duration::from_secs(1));
        for host in 2..6 {
            door.fill(&format!("192.0.2.{host}"));
        }
        for network in 3..6 {
            door.fill(&format!("192.0.{network}.1"));
        }
        let full = Full::Address(KNOWN_MAX);
        assert_eq!(door.fill("192.0.2.1"), (KNOWN_MAX, full));
    }

    #[test]
    fn an_address_is_known_for_a_while_after_its_association() {
        let mut door = Door::new();
        door.take("192.0.2.1").unwrap();
        door.take("192.0.2.1").unwrap();
        assert_eq!(door.state.strangers, 2);
        door.associate("192.0.2.1");
        assert_eq!((door.state.strangers, door.state.networks.len()), (0, 0));
        door.now += 2 * KNOWN_FOR;
        assert_eq!(door.fill("192.0.2.1").0, KNOWN_MAX - 1);
        door.give_back("192.0.2.1", true);
        door.now += KNOWN_FOR;
        assert_eq!(door.fill("192.0.2.1"), (0, Full::Address(STRANGER_MAX)));
        assert_eq!(door.state.strangers, KNOWN_MAX);
        for _ in 0..KNOWN_MAX {
            door.give_back("192.0.2.1", false);
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
