//! How many connections may wait for their Connect, by address and network, and which
//! addresses had an association: for them there are always places. An address that strangers claim is not
//! refused for that: the oldest connection goes whose peer has not confirmed it.
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

mod strangers;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use cairn_rdma::Clock;
use cairn_rdma::address::{Payer, prefix_of};

use crate::panics;
use strangers::Strangers;

/// Why a connection ends that another one displaces.
pub(crate) const DISPLACED: &str = "it waits without an association, and strangers have all of \
     their places: a newer connection takes its place";

/// Waiting connections of strangers that pay together: one address, or an IPv6 /64, where a new one takes
/// the place of the oldest.
pub(crate) const STRANGER_MAX: u32 = 128;
/// Waiting connections of the strangers of one network. Twice what user-space RoCE lets all strangers
/// have: that provider ends old ones of a flood, and this must not refuse new ones while they end.
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

/// The number of a place: a later one is greater.
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
    payer: Payer,
    is_associated: bool,
}

#[derive(Debug, Default)]
struct State {
    hosts: HashMap<IpAddr, Host>,
    /// All connections that wait, the oldest first.
    waiting: BTreeMap<PlaceId, Waiting>,
    taken: u64,
    /// Those of strangers among them.
    strangers: Strangers,
}

/// A connection that waits for its Connect.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    host: IpAddr,
    /// Once it was given to one.
    reactor: Option<usize>,
}

/// An address.
#[derive(Debug)]
struct Host {
    /// Connections that wait for their Connect.
    waiting: u32,
    /// Those whose peers have not confirmed them: anybody can have asked for them in the address's name.
    unconfirmed: BTreeSet<PlaceId>,
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
        let host = address.to_canonical();
        let mut state = self.lock();
        let (id, evicted) = state.take(host, is_short, self.clock.now())?;
        let payer = Payer::of(host, state.host(host).is_known);
        drop(state);
        let place = Place {
            places: Arc::clone(self),
            id,
            host,
            payer,
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

    /// Who pays for what the connection takes.
    pub(crate) fn payer(&self) -> Payer {
        self.payer
    }

    /// The peer has confirmed the connection: the address is its own.
    pub(crate) fn confirm(&self) {
        self.places.lock().confirm(self.id, self.host);
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
            self.payer = Payer::host(self.host);
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
        let host = self.hosts.get(&address);
        let waiting = host.map_or(0, |host| host.waiting);
        let is_known = host.is_some_and(|host| host.is_known);
        let limit = if is_known { KNOWN_MAX } else { STRANGER_MAX };
        let evicted = if waiting >= limit {
            let unconfirmed = host.and_then(|host| host.unconfirmed.first().copied());
            self.evict(unconfirmed.ok_or(Full(limit))?)
        } else if is_known {
            None
        } else if let Some(place) = self.strangers.victim_of_payer(address, STRANGER_MAX) {
            self.evict(place)
        } else if self.strangers.of_network(address) >= NETWORK_MAX {
            self.evict_for(address, true)
        } else if self.strangers.count() >= STRANGERS_MAX || is_short {
            self.evict_for(address, false)
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
        host.unconfirmed.insert(id);
        if !host.is_known {
            self.strangers.add(address, id);
        }
        Ok((id, evicted))
    }

    /// Takes the place of a stranger for one of this address. `within`: of one of its network.
    fn evict_for(&mut self, address: IpAddr, within: bool) -> Option<Evicted> {
        let place = self.strangers.victim_for(address, within)?;
        self.evict(place)
    }

    fn evict(&mut self, place: PlaceId) -> Option<Evicted> {
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
        host.unconfirmed.remove(&id);
        if !host.is_known {
            self.strangers.remove(waiting.host, id);
        }
        Some(waiting)
    }

    fn confirm(&mut self, id: PlaceId, address: IpAddr) {
        if let Some(host) = self.hosts.get_mut(&address) {
            host.unconfirmed.remove(&id);
        }
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
            unconfirmed: BTreeSet::new(),
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
        if waiting > 0 && was_known != is_known {
            let own = self.waiting.iter().filter(|(_, one)| one.host == address);
            for (id, _) in own {
                if is_known {
                    self.strangers.remove(address, *id);
                } else {
                    self.strangers.add(address, *id);
                }
            }
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
mod tests;
