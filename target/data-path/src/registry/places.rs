//! Limits on connections that wait for their Connect, by address and network.
//!
//! Each connection holds a queue pair until its Connect or
//! [`CONNECT_TIMEOUT`](crate::qpair::CONNECT_TIMEOUT). Strangers (addresses without a present or
//! recent association) also share a limit. Discovery connections count as waiting, because any host
//! may have them.
//!
//! At an address's limit, its oldest unconfirmed connection is displaced, because its source may be
//! forged. At the strangers' limit, the network with the most connections loses the oldest
//! connection of its largest payer.

mod strangers;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use cairn_base::Clock;
use cairn_base::address::{Payer, prefix_of};

use cairn_base::panics;
use strangers::Strangers;

pub const DISPLACED: &str = "waiting without an association while all places of strangers \
                                    are taken: replaced by a newer connection";

/// Maximum waiting connections of a stranger: an IPv4 address or IPv6 /64.
pub(crate) const STRANGER_MAX: u32 = 128;
/// Maximum waiting connections of strangers in a network: twice `STRANGERS_MAX` of `roce-proto`, so
/// that new connections are admitted while old ones end.
pub(crate) const NETWORK_MAX: u32 = 384;
pub(crate) const STRANGERS_MAX: u32 = 512;
/// Maximum waiting connections of a known address: enough for hosts that connect 128 I/O queues at
/// once.
pub(crate) const KNOWN_MAX: u32 = 512;
/// Time that an address stays known after its last association.
pub(crate) const KNOWN_FOR: Duration = Duration::from_secs(1800);
/// Maximum known addresses without an association. Beyond this number, expired addresses are
/// dropped, or else the address with the least total association time.
pub(crate) const FORMER_MAX: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full(u32);

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evicted {
    pub place: PlaceId,
    pub reactor: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlaceId(u64);

#[derive(Debug)]
pub struct Places {
    clock: Clock,
    state: Mutex<AdmissionTable>,
}

#[derive(Debug)]
pub struct ConnectPlace {
    places: Arc<Places>,
    id: PlaceId,
    host: IpAddr,
    payer: Payer,
    is_associated: bool,
}

#[derive(Debug, Default)]
struct AdmissionTable {
    hosts: HashMap<IpAddr, Host>,
    waiting: BTreeMap<PlaceId, WaitingConnection>,
    taken: u64,
    strangers: Strangers,
}

#[derive(Debug, Clone, Copy)]
struct WaitingConnection {
    host: IpAddr,
    reactor: Option<usize>,
}

#[derive(Debug)]
struct Host {
    waiting: u32,
    /// Waiting connections with a possibly forged source address.
    unconfirmed: BTreeSet<PlaceId>,
    associated: u32,
    since: Instant,
    lasted: Duration,
    left: Option<Instant>,
    is_known: bool,
}

impl Places {
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            state: Mutex::default(),
        }
    }

    /// Returns the place and any displaced connection. If `is_short`, no queue pair is free for
    /// strangers, so a stranger displaces another stranger.
    pub fn take(
        self: &Arc<Self>,
        address: IpAddr,
        is_short: bool,
    ) -> Result<(ConnectPlace, Option<Evicted>), Full> {
        let host = address.to_canonical();
        let mut state = self.lock();
        let (id, evicted) = state.take(host, is_short, self.clock.now())?;
        let payer = Payer::of(host, state.host(host).is_known);
        drop(state);
        let place = ConnectPlace {
            places: Arc::clone(self),
            id,
            host,
            payer,
            is_associated: false,
        };
        Ok((place, evicted))
    }

    fn lock(&self) -> MutexGuard<'_, AdmissionTable> {
        panics::intact(self.state.lock(), "the counts of connections by address")
    }
}

impl ConnectPlace {
    pub fn is_known(&self) -> bool {
        let state = self.places.lock();
        state.hosts.get(&self.host).is_some_and(|own| own.is_known)
    }

    pub(crate) fn id(&self) -> PlaceId {
        self.id
    }

    pub(crate) fn payer(&self) -> Payer {
        self.payer
    }

    pub(crate) fn confirm(&self) {
        self.places.lock().confirm(self.id, self.host);
    }

    pub fn assign(&self, reactor: usize) {
        if let Some(waiting) = self.places.lock().waiting.get_mut(&self.id) {
            waiting.reactor = Some(reactor);
        }
    }

    pub(crate) fn is_associated(&self) -> bool {
        self.is_associated
    }

    pub(crate) fn associate(&mut self) {
        if !std::mem::replace(&mut self.is_associated, true) {
            self.payer = Payer::host(self.host);
            let now = self.places.clock.now();
            self.places.lock().associate(self.id, self.host, now);
        }
    }
}

impl Drop for ConnectPlace {
    fn drop(&mut self) {
        let now = self.places.clock.now();
        self.places
            .lock()
            .give_back(self.id, self.host, self.is_associated, now);
    }
}

impl AdmissionTable {
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
        self.waiting.insert(id, WaitingConnection { host, reactor });
        let host = self.host_or_new(address, now);
        host.waiting += 1;
        host.unconfirmed.insert(id);
        if !host.is_known {
            self.strangers.add(address, id);
        }
        Ok((id, evicted))
    }

    /// Displaces a stranger's connection; if `within`, in the network of `address`.
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

    fn end_waiting(&mut self, id: PlaceId) -> Option<WaitingConnection> {
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
        // The address becomes known even if its connection was displaced.
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

    /// Updates `is_known`. Drops an address without connections and history.
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

/// Returns the IPv4 /24 or IPv6 /48 network, which usually has one owner.
fn network_of(address: IpAddr) -> IpAddr {
    prefix_of(address, 24, 48)
}

#[cfg(test)]
mod tests;
