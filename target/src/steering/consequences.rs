//! Sentences about the hosts and reservations affected by a change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use cairn_config::{Config, GROUP_PREFIX, Nqn, Uuid};
use cairn_control::Error;
use rustix::io::Errno;

use super::problems::word;
use super::reserving::{dropped_reservation, registrants};
use super::views::{connected_hosts, connections, shut_out};
use crate::server::Snapshot;

pub(super) struct Unlisted {
    named: BTreeMap<String, Vec<Nqn>>,
    connected: BTreeMap<String, BTreeSet<String>>,
}

impl Unlisted {
    pub(super) fn of_list(before: &Snapshot, nqn: &str, host: &str) -> Self {
        let hosts = match host.strip_prefix(GROUP_PREFIX) {
            Some(group) => members(&before.config, group),
            None => Nqn::parse(host).into_iter().collect(),
        };
        Self::of(before, BTreeMap::from([(nqn.to_owned(), hosts)]))
    }

    pub(super) fn of_group(before: &Snapshot, group: &str, hosts: &[String]) -> Self {
        let parsed = hosts.iter().filter_map(|host| Nqn::parse(host).ok());
        let hosts: Vec<Nqn> = parsed.collect();
        let subsystems = before.config.subsystems.iter();
        let naming = subsystems.filter(|one| {
            let mut groups = one.allowed_hosts.groups.iter();
            groups.any(|name| **name == *group)
        });
        let named = naming.map(|one| (one.nqn.raw().to_owned(), hosts.clone()));
        Self::of(before, named.collect())
    }

    fn of(before: &Snapshot, named: BTreeMap<String, Vec<Nqn>>) -> Self {
        let connected = named.iter().map(|(nqn, hosts)| {
            let mut connected = connected_hosts(before, nqn);
            connected.retain(|host| hosts.iter().any(|one| one.raw() == host));
            (nqn.clone(), connected)
        });
        let connected = connected.collect();
        Self { named, connected }
    }

    pub(super) fn sentences(&self, now: &Snapshot) -> Vec<String> {
        let mut all = Vec::new();
        for (nqn, hosts) in &self.named {
            if let Some(connected) = self.connected.get(nqn) {
                all.extend(shut_out(connected, now, nqn));
            }
            all.extend(still_admitted(&now.config, nqn, hosts));
        }
        all
    }
}

fn members(config: &Config, group: &str) -> Vec<Nqn> {
    let mut groups = config.host_groups.iter();
    let found = groups.find(|one| *one.name == *group);
    found.map_or_else(Vec::new, |one| one.hosts.iter().copied().collect())
}

fn still_admitted(config: &Config, nqn: &str, hosts: &[Nqn]) -> Vec<String> {
    let mut subsystems = config.subsystems.iter();
    let Some(own) = subsystems.find(|one| one.nqn.raw() == nqn) else {
        return Vec::new();
    };
    let list = &own.allowed_hosts;
    let of = word(nqn);
    let sentences = hosts.iter().filter(|host| own.allows(host)).map(|host| {
        let name = word(host.raw());
        let mut groups = list.groups.iter();
        let group = groups.find(|group| members(config, group).contains(host));
        let (how, command) = if own.allow_any_host {
            ("like every host".to_owned(), format!("host any {of} off"))
        } else if let Some(group) = group {
            (
                format!("by the host group \"{group}\""),
                format!("host group remove {} {name}", word(group)),
            )
        } else {
            (
                "by its own entry in the list".to_owned(),
                format!("host remove {of} {name}"),
            )
        };
        format!("{host} can still connect to {nqn}, {how}: to end that: cairn-target {command}")
    });
    sentences.collect()
}

/// Returns sentences about lost reservations and disconnected hosts.
///
/// # Errors
/// Hosts are connected or reservations would be lost, and the removal is not forced.
pub(super) fn of_subsystem(
    before: &Snapshot,
    nqn: &str,
    force: bool,
) -> Result<Vec<String>, Error> {
    let mut subsystems = before.config.subsystems.iter();
    let own = subsystems.find(|one| one.nqn.raw() == nqn);
    let nsids = own.into_iter().flat_map(|own| &own.namespaces);
    let dropped = nsids.filter_map(|one| dropped_reservation(before, nqn, one.nsid));
    let mut all: Vec<String> = dropped.collect();
    let hosts = connected_hosts(before, nqn);
    let reservations = all.len();
    if !force && reservations + hosts.len() > 0 {
        return Err(Error::errno(
            Errno::BUSY,
            format!(
                "{nqn} is in use (connected hosts: {}, namespaces with reservations: \
                 {reservations}): to remove it all the same: cairn-target subsystem remove {} --force",
                hosts.len(),
                word(nqn)
            ),
        ));
    }
    let hosts = hosts.into_iter();
    all.extend(hosts.map(|host| format!("{host} was connected to {nqn}, and is disconnected")));
    Ok(all)
}

pub(super) fn of_listener(before: &Snapshot, at: Option<SocketAddr>) -> Vec<String> {
    let Some(at) = at.map(|at| at.to_string()) else {
        return Vec::new();
    };
    let connections = connections(before).into_iter();
    let through = connections.filter(|one| one.local.as_deref() == Some(&*at));
    let hosts: BTreeSet<String> = through.map(|one| one.host).collect();
    let sentence = |host| format!("{host} was connected through {at}, and is disconnected there");
    hosts.into_iter().map(sentence).collect()
}

pub(super) struct Served {
    disk: Option<ServedDisk>,
    hosts: BTreeSet<String>,
    reserved: usize,
}

struct ServedDisk {
    namespace: u64,
    uuid: Uuid,
    backing: String,
}

impl Served {
    pub(super) fn of(snapshot: &Snapshot, nqn: &str, nsid: u32) -> Self {
        let place = Nqn::parse(nqn).ok().map(|nqn| (nqn, nsid));
        let export = place.and_then(|place| snapshot.export(&place));
        let hosts = connected_hosts(snapshot, nqn).into_iter();
        let sees = |host: &String| {
            let list = export.as_ref().and_then(|one| one.config.hosts.list());
            list.is_none_or(|list| list.hosts.iter().any(|one| one.raw() == host))
        };
        Self {
            hosts: hosts.filter(sees).collect(),
            reserved: export.as_ref().map_or(0, registrants),
            disk: export.map(|one| ServedDisk {
                namespace: one.entry.namespace.id,
                uuid: one.entry.namespace.uuid,
                backing: one.entry.namespace.backing.clone(),
            }),
        }
    }

    pub(super) fn removed(&self, nqn: &str, nsid: u32) -> Vec<String> {
        let hosts = self.hosts.iter();
        let sentence = |host| format!("{host} is connected, and loses namespace {nsid} of {nqn}");
        hosts.map(sentence).collect()
    }

    pub(super) fn changes_to(&self, now: &Self, nqn: &str, nsid: u32) -> Vec<String> {
        let of = format!("namespace {nsid} of {nqn}");
        let (Some(before), Some(after)) = (&self.disk, &now.disk) else {
            return Vec::new();
        };
        let lost = (self.reserved > 0 && now.reserved == 0).then(|| {
            let count = self.reserved;
            format!("{of} loses its reservations, of {count} registrants: fenced hosts can write")
        });
        let hosts = self.hosts.iter().filter_map(|host| {
            let what = if !now.hosts.contains(host) {
                "no longer sees"
            } else if before.uuid != after.uuid {
                "finds another disk behind"
            } else if before.backing != after.backing {
                "continues, by the equal UUID, with other data behind"
            } else if before.namespace != after.namespace {
                "loses and finds again"
            } else {
                return None;
            };
            Some(format!("{host} is connected, and {what} {of}"))
        });
        lost.into_iter().chain(hosts).collect()
    }
}
