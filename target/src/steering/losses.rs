//! Sentences about hosts and reservations that a new configuration affects.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use cairn_config::{Config, Nqn, Subsystem, Trid};

use super::consequences::{Connected, loses, may_see};
use super::reserving::{dropped, reservations};
use super::views::connections;
use super::wording::word;
use crate::answers::Connection;
use crate::server::Snapshot;

type Subsystems<'a> = BTreeMap<&'a str, &'a Subsystem>;

/// Connections and reservations before a change. A snapshot would show those after it, because its
/// views are live.
pub(super) struct Before {
    config: Arc<Config>,
    connections: Vec<Connection>,
    /// Sentences about reservations that the removal of their namespace drops.
    reserved: BTreeMap<(String, u32), String>,
}

impl Before {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let reserved = reservations(snapshot).into_iter().filter_map(|one| {
            let sentence = dropped(&one)?;
            Some(((one.nqn, one.nsid), sentence))
        });
        Self {
            config: Arc::clone(&snapshot.config),
            connections: connections(snapshot),
            reserved: reserved.collect(),
        }
    }

    /// Returns the sentences about all subsystems.
    pub(super) fn losses(&self, now: &Snapshot) -> Vec<String> {
        let change = Change::between(&self.config, &now.config);
        let mut all = self.losses_by(&change, |_| true);
        all.extend(change.former.keys().flat_map(|nqn| change.opened(nqn)));
        all
    }

    /// Returns the sentences about one subsystem.
    pub(super) fn losses_at(&self, now: &Snapshot, nqn: &str) -> Vec<String> {
        let change = Change::between(&self.config, &now.config);
        let mut all = self.losses_by(&change, |other| other == nqn);
        all.extend(change.opened(nqn));
        all
    }

    fn losses_by(&self, change: &Change<'_>, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let mut hosts: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        let mut all = BTreeSet::new();
        for one in self.connections.iter().filter(|one| is_wanted(&one.nqn)) {
            all.extend(change.disconnected(one));
            hosts.entry(&one.nqn).or_default().insert(one.host.clone());
        }
        let mut all: Vec<String> = all.into_iter().collect();
        for (nqn, hosts) in hosts {
            all.extend(change.lost_namespaces(nqn, &hosts));
            if let Some(present) = change.present.get(nqn) {
                let former = change.former.get(nqn).copied();
                all.extend(Connected::to(nqn, former, hosts).shut_out_of(present));
            }
        }
        let reserved = self.reserved.iter();
        let gone = reserved.filter(|((nqn, nsid), _)| is_wanted(nqn) && !change.keeps(nqn, *nsid));
        all.extend(gone.map(|(_, sentence)| sentence.clone()));
        all
    }
}

/// Subsystems before and after a change.
struct Change<'a> {
    former: Subsystems<'a>,
    present: Subsystems<'a>,
    now: &'a Config,
}

impl<'a> Change<'a> {
    fn between(before: &'a Config, now: &'a Config) -> Self {
        Self {
            former: by_nqn(before),
            present: by_nqn(now),
            now,
        }
    }

    fn keeps(&self, nqn: &str, nsid: u32) -> bool {
        let own = self.present.get(nqn);
        own.is_some_and(|own| own.namespaces.iter().any(|one| one.nsid == nsid))
    }

    /// Returns the sentences about hosts that no longer authenticate to a remaining subsystem.
    fn opened(&self, nqn: &str) -> Vec<String> {
        match (self.former.get(nqn), self.present.get(nqn)) {
            (Some(own), Some(present)) => unauthenticated(own, present),
            _ => Vec::new(),
        }
    }

    /// Returns a sentence if the connection's subsystem, or its listener there, is gone.
    fn disconnected(&self, one: &Connection) -> Option<String> {
        let (host, nqn) = (&one.host, &one.nqn);
        let Some(own) = self.present.get(&**nqn) else {
            return Some(format!(
                "{host} was connected to {nqn}, and is disconnected"
            ));
        };
        let local: SocketAddr = one.local.as_ref()?.parse().ok()?;
        (!leads_to(self.now, own, local)).then(|| {
            format!("{host} was connected to {nqn} through {local}, and is disconnected there")
        })
    }

    /// Returns a sentence for each namespace of a remaining subsystem that a host has lost.
    fn lost_namespaces(&self, nqn: &str, hosts: &BTreeSet<String>) -> Vec<String> {
        let (Some(own), Some(present)) = (self.former.get(nqn), self.present.get(nqn)) else {
            return Vec::new();
        };
        let kept: BTreeSet<u32> = present.namespaces.iter().map(|one| one.nsid).collect();
        let gone = own
            .namespaces
            .iter()
            .filter(|one| !kept.contains(&one.nsid));
        let lost = gone.flat_map(|one| {
            let hosts = hosts.iter().filter(|host| may_see(one.hosts.list(), host));
            hosts.map(|host| loses(host, nqn, one.nsid))
        });
        lost.collect()
    }
}

fn by_nqn(config: &Config) -> Subsystems<'_> {
    let subsystems = config.subsystems.iter();
    subsystems.map(|one| (one.nqn.raw(), one)).collect()
}

/// True if a listener at a connection's local address leads to the subsystem.
pub(super) fn leads_to(config: &Config, own: &Subsystem, local: SocketAddr) -> bool {
    let mut leading = config.listeners_of(own);
    leading.any(|one| is_at(one.trid(), local))
}

/// Returns the configured address of the listener at a connection's local address.
pub(super) fn listener_at(config: &Config, local: SocketAddr) -> Option<Trid> {
    let mut all = config.listeners.iter().map(|one| one.trid());
    all.find(|at| is_at(*at, local))
}

fn is_at(at: Trid, local: SocketAddr) -> bool {
    at.resolve()
        .is_ok_and(|at| at == local || at.ip().is_unspecified() && at.port() == local.port())
}

/// Returns sentences about hosts that had to authenticate, and no longer have to.
fn unauthenticated(before: &Subsystem, now: &Subsystem) -> Vec<String> {
    let (former, present) = (&before.authentication, &now.authentication);
    let nqn = now.nqn;
    let require = format!(
        "cairn-target subsystem set {} --require-key on",
        word(nqn.raw())
    );
    if present.is_required || present.others.is_some() {
        return Vec::new();
    }
    let has_key: BTreeSet<&Nqn> = present.hosts.iter().map(|(host, _)| host).collect();
    let had_key = former.hosts.iter().map(|(host, _)| host);
    let without = had_key.filter(|host| now.allows(host) && !has_key.contains(host));
    let mut all: Vec<String> = without
        .map(|host| {
            format!("{host} can connect to {nqn} without a key now: to prevent it: {require}")
        })
        .collect();
    if former.is_required || former.others.is_some() {
        all.push(format!(
            "hosts without a key of their own can connect to {nqn} now: to prevent it: {require}"
        ));
    }
    all
}
