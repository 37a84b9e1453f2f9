//! Sentences about hosts and reservations that a new configuration affects.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use cairn_config::{Config, Nqn, Subsystem};

use super::consequences::{Connected, Served};
use super::problems::word;
use super::reserving::{dropped_reservation, reservations};
use super::views::connections;
use crate::server::Snapshot;

type Subsystems<'a> = BTreeMap<&'a str, &'a Subsystem>;

/// Returns the sentences about all subsystems.
pub(super) fn of_configuration(before: &Snapshot, now: &Snapshot) -> Vec<String> {
    of(before, now, None)
}

/// Returns the sentences about one subsystem.
pub(super) fn of_subsystem(before: &Snapshot, now: &Snapshot, nqn: &str) -> Vec<String> {
    of(before, now, Some(nqn))
}

fn of(before: &Snapshot, now: &Snapshot, only: Option<&str>) -> Vec<String> {
    let is_wanted = |nqn: &str| only.is_none_or(|only| only == nqn);
    let [former, present] = [before, now].map(|one| by_nqn(&one.config));
    let mut all = disconnected(before, now, &present);
    all.retain(|(nqn, _)| is_wanted(nqn));
    let mut all: Vec<String> = all.into_iter().map(|(_, sentence)| sentence).collect();
    let connected = connections(before);
    let connected: BTreeSet<&str> = connected.iter().map(|one| &*one.nqn).collect();
    for (nqn, own) in former.iter().filter(|(nqn, _)| is_wanted(nqn)) {
        let Some(present) = present.get(nqn) else {
            continue;
        };
        if connected.contains(nqn) {
            all.extend(Connected::of(before, nqn).shut_out(now));
            let kept: BTreeSet<u32> = present.namespaces.iter().map(|one| one.nsid).collect();
            let gone = own.namespaces.iter().map(|one| one.nsid);
            for nsid in gone.filter(|nsid| !kept.contains(nsid)) {
                all.extend(Served::of(before, nqn, nsid).removed(nqn, nsid));
            }
        }
        all.extend(unauthenticated(own, present));
    }
    let reserved = reservations(before).into_iter();
    let gone = reserved.filter(|one| is_wanted(&one.nqn) && !exports(&present, &one.nqn, one.nsid));
    all.extend(gone.filter_map(|one| dropped_reservation(before, &one.nqn, one.nsid)));
    all
}

fn by_nqn(config: &Config) -> Subsystems<'_> {
    let subsystems = config.subsystems.iter();
    subsystems.map(|one| (one.nqn.raw(), one)).collect()
}

fn exports(present: &Subsystems<'_>, nqn: &str, nsid: u32) -> bool {
    let own = present.get(nqn);
    own.is_some_and(|own| own.namespaces.iter().any(|one| one.nsid == nsid))
}

/// Returns the hosts whose subsystem, or its listener, is gone, by subsystem.
fn disconnected(
    before: &Snapshot,
    now: &Snapshot,
    present: &Subsystems<'_>,
) -> BTreeSet<(String, String)> {
    let sentences = connections(before).into_iter().filter_map(|one| {
        let (host, nqn) = (one.host, one.nqn);
        let Some(own) = present.get(&*nqn) else {
            let sentence = format!("{host} was connected to {nqn}, and is disconnected");
            return Some((nqn, sentence));
        };
        let local: SocketAddr = one.local?.parse().ok()?;
        (!leads_to(&now.config, own, local)).then(|| {
            let sentence =
                format!("{host} was connected to {nqn} through {local}, and is disconnected there");
            (nqn, sentence)
        })
    });
    sentences.collect()
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
