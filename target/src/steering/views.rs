//! Responses of the control methods that query Cairn's objects.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use cairn_config::{
    Backing, Config, HostList, Nqn, Roce, ana_summary, ana_word, format_size, nearest_name,
};
use cairn_control::Error;
use cairn_disk::Backend;
use rustix::io::Errno;

use super::problems::{Observations, health, problems};
use super::refusals::refused_hosts;
use super::reserving::reservations;
use super::source::{Source, absolute};
use crate::answers::{
    Connection, Host, HostGroup, Hosts, LastReload, Listener, Missing, Namespace, NamespaceState,
    Referral, Status, Subsystem,
};
use crate::revision;
use crate::server::{Export, Snapshot};

pub(super) fn status(
    snapshot: &Snapshot,
    seen: &Observations<'_>,
    source: &Source,
    warnings: &[String],
) -> Status {
    let config = &snapshot.config;
    let namespaces: usize = config.subsystems.iter().map(|s| s.namespaces.len()).sum();
    let views = snapshot.subsystems.iter().map(|(_, shared)| shared.view());
    let (mut hosts, mut failed, mut deleted) = (0, 0, 0);
    for view in views {
        hosts += view.controllers.len();
        for entry in &view.namespaces.namespaces {
            let backend = &entry.namespace.backend;
            failed += usize::from(backend.is_failed());
            deleted += usize::from(backend.is_deleted());
        }
    }
    let refused = refused_hosts(snapshot);
    let problems = problems(snapshot, seen, &refused);
    let last_reload = seen.facts.reload.as_ref().map(|last| LastReload {
        at: seconds(last.at),
        error: last.ended.as_ref().err().cloned(),
    });
    Status {
        health: health(&problems),
        problems,
        refused,
        version: revision::VERSION,
        commit: revision::COMMIT,
        pid: std::process::id(),
        uptime_s: snapshot.uptime.as_secs(),
        reactors: snapshot.reactors.len(),
        config_file: source
            .path()
            .map(|path| absolute(path).display().to_string()),
        read_only: config.control.read_only,
        listeners: listeners(snapshot),
        missing: missing(snapshot),
        warnings: warnings.to_vec(),
        at_next_start: snapshot.at_next_start.clone(),
        subsystems: config.subsystems.len(),
        namespaces,
        failed_namespaces: failed,
        deleted_namespaces: deleted,
        associations: hosts,
        last_reload,
        reservations: reservations(snapshot),
    }
}

fn missing(snapshot: &Snapshot) -> Vec<Missing> {
    let missing = snapshot.missing.iter().map(|(one, lasting)| Missing {
        kind: one.thing.kind(),
        name: one.thing.to_string(),
        reason: one.reason.clone(),
        for_s: lasting.as_secs(),
    });
    missing.collect()
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

pub(super) fn listeners(snapshot: &Snapshot) -> Vec<Listener> {
    let listeners = snapshot.listeners.iter().map(|listener| {
        let (ana, groups) = ana_summary(&listener.ana);
        let (roce, vlan) = match (listener.provider, listener.roce) {
            ("soft", Roce::V1 { vlan }) => (Some("v1"), vlan),
            ("soft", Roce::V2) => (Some("v2"), None),
            _ => (None, None),
        };
        let groups = groups.into_iter();
        let groups = groups.map(|(group, state)| (group.to_string(), ana_word(state)));
        Listener {
            address: listener.address.address.to_string(),
            port: listener.address.port,
            provider: listener.provider,
            roce,
            vlan,
            ana: ana_word(ana),
            ana_groups: groups.collect(),
            drained: listener.drained,
            down: listener.down.as_ref().map(|(reason, _)| reason.clone()),
        }
    });
    listeners.collect()
}

pub(super) fn subsystems(config: &Config) -> Vec<Subsystem> {
    let subsystems = config.subsystems.iter().map(|subsystem| {
        let list = &subsystem.allowed_hosts;
        let listeners = subsystem.listeners.as_ref();
        Subsystem {
            nqn: subsystem.nqn.raw().to_owned(),
            serial: subsystem.serial.clone(),
            model: subsystem.model.clone(),
            listeners: listeners.map(|all| all.iter().map(ToString::to_string).collect()),
            ana: own_states(subsystem),
            allow_any_host: subsystem.allow_any_host,
            require_key: subsystem.authentication.is_required,
            hosts: single(config, list),
            host_groups: groups(list),
            namespaces: subsystem.namespaces.len(),
        }
    });
    subsystems.collect()
}

fn own_states(
    subsystem: &cairn_config::Subsystem,
) -> BTreeMap<String, BTreeMap<String, &'static str>> {
    let states = subsystem.ana.iter().map(|(listener, own)| {
        let states = own.entries().map(|(group, state)| {
            let group = group.map_or("all".to_owned(), |group| group.to_string());
            (group, ana_word(state))
        });
        (listener.to_string(), states.collect())
    });
    states.collect()
}

fn single(config: &Config, list: &HostList) -> Vec<String> {
    let hosts = list.single(&config.host_groups);
    hosts.map(|host| host.raw().to_owned()).collect()
}

fn groups(list: &HostList) -> Vec<String> {
    list.groups.iter().map(|name| name.to_string()).collect()
}

pub(super) fn hosts(snapshot: &Snapshot, nqn: &str) -> Option<Hosts> {
    let config = &snapshot.config;
    let mut subsystems = config.subsystems.iter();
    let subsystem = subsystems.find(|one| one.nqn.raw() == nqn)?;
    let mut shared = snapshot.subsystems.iter();
    let shared = shared.find(|(other, _)| *other == subsystem.nqn);
    let mut controllers: BTreeMap<String, usize> = BTreeMap::new();
    for controller in shared.map_or(Vec::new(), |(_, shared)| shared.view().controllers) {
        *controllers.entry(controller.host_nqn).or_default() += 1;
    }
    let mut rows = Vec::new();
    let mut add = |host: &Nqn, group: Option<&str>| {
        rows.push(Host {
            host: host.raw().to_owned(),
            group: group.map(str::to_owned),
            authenticates: subsystem.authentication.is_asked_of(host),
            lacks_key: subsystem.authentication.lacks_key_of(host),
            controllers: controllers.get(&host.to_string()).copied().unwrap_or(0),
        });
    };
    let list = &subsystem.allowed_hosts;
    for host in list.single(&config.host_groups) {
        add(host, None);
    }
    for name in &list.groups {
        let group = config.host_groups.iter().find(|group| group.name == *name);
        for host in group.into_iter().flat_map(|group| group.hosts.iter()) {
            add(host, Some(name));
        }
    }
    Some(Hosts {
        allow_any_host: subsystem.allow_any_host,
        hosts: rows,
    })
}

pub(super) fn connected_hosts(snapshot: &Snapshot, nqn: &str) -> BTreeSet<String> {
    let shared = snapshot.subsystems.iter();
    let shared = shared.filter(|(other, _)| other.raw() == nqn);
    let controllers = shared.flat_map(|(_, shared)| shared.view().controllers);
    controllers.map(|one| one.host_nqn).collect()
}

pub(super) fn unused_group(config: &Config, name: &str) -> Option<String> {
    let groups = host_groups(config);
    let is_unused = groups.iter().any(|one| one.name == name && one.lists == 0);
    is_unused.then(|| {
        format!(
            "no list names the host group \"{name}\", so it permits nothing: cairn-target host add \
             NQN @{name}"
        )
    })
}

pub(super) fn no_subsystem(config: &Config, nqn: &str) -> Error {
    let names = config.subsystems.iter().map(|one| one.nqn.raw());
    let near = nearest_name(nqn, names).map(|near| format!(": did you mean {near}?"));
    let near = near.unwrap_or_default();
    let message = format!("the subsystem {nqn} does not exist{near}");
    Error::errno(Errno::NOENT, message)
}

pub(super) fn referrals(config: &Config) -> Vec<Referral> {
    let referrals = config.referrals.iter().map(|referral| Referral {
        address: referral.address.ip(),
        port: referral.address.port(),
        nqn: referral.nqn.raw().to_owned(),
    });
    referrals.collect()
}

pub(super) fn host_groups(config: &Config) -> Vec<HostGroup> {
    let mut uses: BTreeMap<&str, usize> = BTreeMap::new();
    for subsystem in &config.subsystems {
        let namespaces = subsystem.namespaces.iter();
        let lists = namespaces.filter_map(|one| one.hosts.list());
        let lists = lists.chain([&subsystem.allowed_hosts]);
        for name in lists.flat_map(|list| &list.groups) {
            *uses.entry(name).or_default() += 1;
        }
    }
    let groups = config.host_groups.iter().map(|group| HostGroup {
        name: group.name.to_string(),
        lists: uses.get(&*group.name).copied().unwrap_or(0),
        hosts: group
            .hosts
            .iter()
            .map(|host| host.raw().to_owned())
            .collect(),
    });
    groups.collect()
}

pub(super) fn namespaces(snapshot: &Snapshot) -> Vec<Namespace> {
    let mut all: Vec<Namespace> = snapshot
        .exports()
        .map(|export| namespace(&snapshot.config, &export))
        .collect();
    for (missing, _) in &snapshot.missing {
        let Some(place) = missing.thing.place() else {
            continue;
        };
        let shared = snapshot.subsystems.iter().find(|(nqn, _)| *nqn == place.0);
        let is_served = shared.is_some_and(|(_, shared)| {
            let table = shared.view().namespaces;
            table.get(place.1).is_some()
        });
        if let Some(config) = snapshot.configured(&place).filter(|_| !is_served) {
            all.push(Namespace {
                state: NamespaceState::Missing,
                reason: Some(missing.reason.clone()),
                uuid: config.uuid.map(|uuid| uuid.to_string()),
                ..configured(&snapshot.config, &place.0, config)
            });
        }
    }
    all.sort_by(|a, b| (&a.nqn, a.nsid).cmp(&(&b.nqn, b.nsid)));
    all
}

fn configured(config: &Config, nqn: &Nqn, one: &cairn_config::Namespace) -> Namespace {
    let list = one.hosts.list();
    Namespace {
        nqn: nqn.raw().to_owned(),
        nsid: one.nsid,
        state: NamespaceState::Ok,
        reason: None,
        name: one.name.clone(),
        export: export(&one.backing),
        bytes: None,
        block_bytes: None,
        uuid: None,
        read_only: one.read_only,
        protected_by_host: false,
        ana_group: one.ana_group,
        hosts: list.map(|list| single(config, list)),
        host_groups: list.map_or(Vec::new(), groups),
        failed: false,
        deleted: false,
    }
}

/// Formats an export; sizes use the largest unit without a fraction.
fn export(backing: &Backing) -> String {
    match backing {
        Backing::Memory { bytes } => format!("mem:{}", format_size(*bytes)),
        Backing::Null { bytes } => format!("null:{}", format_size(*bytes)),
        other => other.to_string(),
    }
}

fn namespace(config: &Config, export: &Export<'_>) -> Namespace {
    let entry = &export.entry;
    let block_bytes = 1u64 << entry.view.lbads;
    let backend = &entry.namespace.backend;
    let (failed, deleted) = (backend.is_failed(), backend.is_deleted());
    let (state, reason) = match (failed, deleted) {
        (true, _) => (NamespaceState::Failed, Some(FAILED)),
        (false, true) => (NamespaceState::Deleted, Some(deletion(backend))),
        (false, false) => (NamespaceState::Ok, None),
    };
    Namespace {
        state,
        reason: reason.map(str::to_owned),
        bytes: Some(entry.view.nsze * block_bytes),
        block_bytes: Some(block_bytes),
        uuid: Some(entry.namespace.uuid.to_string()),
        protected_by_host: entry.namespace.is_protected(),
        failed,
        deleted,
        ..configured(config, export.nqn, export.config)
    }
}

pub(super) const FAILED: &str = "the disk lost data, or is smaller than its namespace";

pub(super) fn deletion(backend: &Backend) -> &'static str {
    if backend.is_displaced() {
        "another file is at its path: the deleted file is served until the target ends"
    } else {
        "the file was deleted: its data exists until the target ends"
    }
}

pub(super) fn connections(snapshot: &Snapshot) -> Vec<Connection> {
    let mut all = Vec::new();
    for (nqn, shared) in &snapshot.subsystems {
        for controller in shared.view().controllers {
            let first = controller.queues.first().map(|(_, queue)| queue);
            let queues = controller.queues.iter();
            all.push(Connection {
                nqn: nqn.raw().to_owned(),
                cntlid: controller.cntlid,
                peer: first.map(|queue| queue.peer.ip()),
                local: first.map(|queue| queue.local.to_string()),
                provider: first.map(|queue| queue.provider),
                queues: queues.len(),
                outstanding: queues.map(|(_, queue)| queue.counters.depth.get()).sum(),
                host: controller.host_nqn,
            });
        }
    }
    all
}
