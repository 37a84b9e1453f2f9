//! Sentences about hosts and reservations that a new configuration affects.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use cairn_config::{Config, Nqn, Subsystem};

use super::consequences::Connected;
use super::problems::word;
use super::reserving::{dropped_reservation, reservations};
use super::views::connections;
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
            let sentence = dropped_reservation(snapshot, &one.nqn, one.nsid)?;
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
        let [former, present] = [&self.config, &now.config].map(|one| by_nqn(one));
        let mut all = self.losses_of(now, |_| true);
        for (nqn, own) in former {
            if let Some(present) = present.get(nqn) {
                all.extend(unauthenticated(own, present));
            }
        }
        all
    }

    /// Returns the sentences about one subsystem.
    pub(super) fn losses_at(&self, now: &Snapshot, nqn: &str) -> Vec<String> {
        self.losses_of(now, |other| other == nqn)
    }

    fn losses_of(&self, now: &Snapshot, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let [former, present] = [&self.config, &now.config].map(|one| by_nqn(one));
        let mut hosts: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        let mut all = BTreeSet::new();
        for one in self.connections.iter().filter(|one| is_wanted(&one.nqn)) {
            all.extend(disconnected(one, &now.config, &present));
            hosts.entry(&one.nqn).or_default().insert(one.host.clone());
        }
        let mut all: Vec<String> = all.into_iter().collect();
        for (nqn, hosts) in hosts {
            let (Some(own), Some(present)) = (former.get(nqn), present.get(nqn)) else {
                continue;
            };
            all.extend(Connected::with(&self.config, nqn, hosts.clone()).shut_out(now));
            let kept: BTreeSet<u32> = present.namespaces.iter().map(|one| one.nsid).collect();
            let gone = own.namespaces.iter();
            for one in gone.filter(|one| !kept.contains(&one.nsid)) {
                let list = one.hosts.list();
                let sees = |host: &&String| {
                    list.is_none_or(|list| list.hosts.iter().any(|one| one.raw() == *host))
                };
                let nsid = one.nsid;
                all.extend(hosts.iter().filter(sees).map(|host| {
                    format!("{host} is connected, and loses namespace {nsid} of {nqn}")
                }));
            }
        }
        let is_gone = |((nqn, nsid), _): &(&(String, u32), &String)| {
            is_wanted(nqn) && !exports(&present, nqn, *nsid)
        };
        let reserved = self.reserved.iter().filter(is_gone);
        all.extend(reserved.map(|(_, sentence)| sentence.clone()));
        all
    }
}

fn by_nqn(config: &Config) -> Subsystems<'_> {
    let subsystems = config.subsystems.iter();
    subsystems.map(|one| (one.nqn.raw(), one)).collect()
}

fn exports(present: &Subsystems<'_>, nqn: &str, nsid: u32) -> bool {
    let own = present.get(nqn);
    own.is_some_and(|own| own.namespaces.iter().any(|one| one.nsid == nsid))
}

/// Returns a sentence if the connection's subsystem, or its listener there, is gone.
fn disconnected(one: &Connection, now: &Config, present: &Subsystems<'_>) -> Option<String> {
    let (host, nqn) = (&one.host, &one.nqn);
    let Some(own) = present.get(&**nqn) else {
        return Some(format!(
            "{host} was connected to {nqn}, and is disconnected"
        ));
    };
    let local: SocketAddr = one.local.as_ref()?.parse().ok()?;
    let is_gone = !leads_to(now, own, local);
    is_gone.then(|| {
        format!("{host} was connected to {nqn} through {local}, and is disconnected there")
    })
}

/// True if a listener at a connection's local address leads to the subsystem.
fn leads_to(config: &Config, own: &Subsystem, local: SocketAddr) -> bool {
    let all = config.listeners.iter().map(|one| one.trid());
    let mut leading = all.filter(|at| own.listeners.as_ref().is_none_or(|list| list.contains(at)));
    leading.any(|at| {
        at.resolve()
            .is_ok_and(|at| at == local || at.ip().is_unspecified() && at.port() == local.port())
    })
}

/// Returns sentences about hosts that had to authenticate, and no longer have to.
fn unauthenticated(before: &Subsystem, now: &Subsystem) -> Vec<String> {
    let (former, present) = (&before.authentication, &now.authentication);
    let nqn = now.nqn;
    let require = format!(
        "cairn-target subsystem set {} --require-key on",
        word(nqn.raw())
    );
    let had_to = |host: &&Nqn| former.is_asked_of(host) && !present.is_asked_of(host);
    let keyed = former.hosts.iter().map(|(host, _)| host);
    let keyed = keyed.filter(|host| now.allows(host)).filter(had_to);
    let mut all: Vec<String> = keyed
        .map(|host| {
            format!("{host} can connect to {nqn} without a key now: to prevent it: {require}")
        })
        .collect();
    let had_all = former.is_required || former.others.is_some();
    if had_all && !present.is_required && present.others.is_none() {
        all.push(format!(
            "hosts without a key of their own can connect to {nqn} now: to prevent it: {require}"
        ));
    }
    all
}
