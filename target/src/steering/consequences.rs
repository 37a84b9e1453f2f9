//! Sentences about the hosts and reservations affected by a change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use cairn_config::{Backing, Config, GROUP_PREFIX, HostList, Nqn, Subsystem, Uuid};
use cairn_control::Error;
use rustix::io::Errno;

use super::reserving::{dropped_reservation, registrants};
use super::views::{connected_hosts, connections};
use super::wording::{key_command, word};
use crate::nouns::count;
use crate::server::Snapshot;

/// Hosts connected to a subsystem before a change.
pub(super) struct Connected {
    nqn: String,
    /// The value is true for a host that had its own key.
    hosts: BTreeMap<String, bool>,
}

impl Connected {
    pub(super) fn of(before: &Snapshot, nqn: &str) -> Self {
        let own = subsystem(&before.config, nqn);
        Self::to(nqn, own, connected_hosts(before, nqn))
    }

    pub(super) fn to(nqn: &str, own: Option<&Subsystem>, hosts: BTreeSet<String>) -> Self {
        let had_key = |host: &str| {
            let mut keys = own.into_iter().flat_map(|own| &own.authentication.hosts);
            keys.any(|(other, _)| other.raw() == host)
        };
        let hosts = hosts.into_iter().map(|host| {
            let had_key = had_key(&host);
            (host, had_key)
        });
        Self {
            nqn: nqn.to_owned(),
            hosts: hosts.collect(),
        }
    }

    pub(super) fn among(mut self, hosts: &[Nqn]) -> Self {
        self.hosts
            .retain(|host, _| hosts.iter().any(|one| one.raw() == host));
        self
    }

    /// Returns a sentence for each host that cannot connect again.
    pub(super) fn shut_out(&self, now: &Snapshot) -> Vec<String> {
        let own = subsystem(&now.config, &self.nqn);
        own.map_or_else(Vec::new, |own| self.shut_out_of(own))
    }

    /// Like [`Self::shut_out`], by the subsystem's present configuration.
    pub(super) fn shut_out_of(&self, own: &Subsystem) -> Vec<String> {
        let nqn = &*self.nqn;
        let sentences = self.hosts.iter().filter_map(|(host, had_key)| {
            let parsed = Nqn::parse(host).ok()?;
            let is_listed = own.allowed_hosts.hosts.contains(&parsed);
            let key = || key_command(nqn, host, is_listed, "--key FILE");
            let (why, command) = match own.allows(&parsed) {
                false if *had_key => ("it is not permitted", key()),
                false => (
                    "it is not permitted",
                    format!("cairn-target host add {} {}", word(nqn), word(host)),
                ),
                true if own.authentication.lacks_key_of(&parsed) => ("it has no key", key()),
                true => return None,
            };
            Some(format!(
                "{host} was connected, and cannot connect again, because {why}: {command}"
            ))
        });
        sentences.collect()
    }
}

fn subsystem<'a>(config: &'a Config, nqn: &str) -> Option<&'a Subsystem> {
    config.subsystems.iter().find(|one| one.nqn.raw() == nqn)
}

/// True if a list, or its absence, lets the host see a namespace.
pub(super) fn may_see(list: Option<&HostList>, host: &str) -> bool {
    let lists = |list: &HostList| Nqn::parse(host).is_ok_and(|host| list.hosts.contains(&host));
    list.is_none_or(lists)
}

pub(super) fn loses(host: &str, nqn: &str, nsid: u32) -> String {
    format!("{host} is connected, and loses namespace {nsid} of {nqn}")
}

pub(super) struct Unlisted {
    named: BTreeMap<String, Vec<Nqn>>,
    connected: BTreeMap<String, Connected>,
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
            let connected = Connected::of(before, nqn);
            (nqn.clone(), connected.among(hosts))
        });
        let connected = connected.collect();
        Self { named, connected }
    }

    pub(super) fn sentences(&self, now: &Snapshot) -> Vec<String> {
        let mut all = Vec::new();
        for (nqn, hosts) in &self.named {
            if let Some(connected) = self.connected.get(nqn) {
                all.extend(connected.shut_out(now));
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
    let Some(own) = subsystem(config, nqn) else {
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
    let own = subsystem(&before.config, nqn);
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
    /// Hosts that may see the namespace; `None` if all may.
    list: Option<HostList>,
    reserved: usize,
}

struct ServedDisk {
    namespace: u64,
    uuid: Uuid,
    backing: String,
    is_memory: bool,
}

impl Served {
    pub(super) fn of(snapshot: &Snapshot, nqn: &str, nsid: u32) -> Self {
        let place = Nqn::parse(nqn).ok().map(|nqn| (nqn, nsid));
        let export = place.and_then(|place| snapshot.export(&place));
        let list = export.as_ref().and_then(|one| one.config.hosts.list());
        let list = list.cloned();
        let hosts = connected_hosts(snapshot, nqn).into_iter();
        Self {
            hosts: hosts.filter(|host| may_see(list.as_ref(), host)).collect(),
            list,
            reserved: export.as_ref().map_or(0, registrants),
            disk: export.map(|one| ServedDisk {
                namespace: one.entry.namespace.id,
                uuid: one.entry.namespace.uuid,
                backing: one.entry.namespace.backing.clone(),
                is_memory: matches!(one.config.backing, Backing::Memory { .. }),
            }),
        }
    }

    pub(super) fn removed(&self, nqn: &str, nsid: u32) -> Vec<String> {
        let hosts = self.hosts.iter().map(|host| loses(host, nqn, nsid));
        hosts.chain(self.lost_memory(nqn, nsid)).collect()
    }

    fn lost_memory(&self, nqn: &str, nsid: u32) -> Option<String> {
        let disk = self.disk.as_ref().filter(|disk| disk.is_memory)?;
        let backing = &disk.backing;
        Some(format!(
            "namespace {nsid} of {nqn} was {backing}: its contents are lost"
        ))
    }

    pub(super) fn changes_to(&self, now: &Self, nqn: &str, nsid: u32) -> Vec<String> {
        let of = format!("namespace {nsid} of {nqn}");
        let (Some(before), Some(after)) = (&self.disk, &now.disk) else {
            return Vec::new();
        };
        let lost = (self.reserved > 0 && now.reserved == 0).then(|| {
            let registrants = count(self.reserved as u64, "registrant");
            format!("{of} loses its reservations, of {registrants}: fenced hosts can write")
        });
        let hosts = self.hosts.iter().filter_map(|host| {
            let what = if !may_see(now.list.as_ref(), host) {
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
        let memory = (before.namespace != after.namespace)
            .then(|| self.lost_memory(nqn, nsid))
            .flatten();
        lost.into_iter().chain(hosts).chain(memory).collect()
    }
}
