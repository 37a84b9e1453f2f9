//! Responses of Cairn's own query methods.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use cairn_config::{Config, HostList, Nqn, Roce, Subsystem, ana_word};
use cairn_control::Error;
use rustix::io::Errno;
use serde_json::{Value, json};

use super::published::Facts;
use super::source::Source;
use crate::revision;
use crate::server::Snapshot;

pub(super) fn status(
    snapshot: &Snapshot,
    facts: &Facts,
    source: &Source,
    warnings: &[String],
) -> Value {
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
    let reload = facts.reload.as_ref().map(|(at, ended)| {
        json!({
            "at": seconds(*at),
            "error": ended.as_ref().err(),
        })
    });
    json!({
        "version": revision::VERSION,
        "commit": revision::COMMIT,
        "pid": std::process::id(),
        "uptime_s": snapshot.uptime.as_secs(),
        "reactors": snapshot.reactors.len(),
        "config_file": source.path(),
        "read_only": config.control.read_only,
        "listeners": listeners(snapshot),
        "missing": missing(snapshot),
        "warnings": warnings,
        "at_next_start": snapshot.at_next_start,
        "subsystems": config.subsystems.len(),
        "namespaces": namespaces,
        "failed_namespaces": failed,
        "deleted_namespaces": deleted,
        "associations": hosts,
        "last_reload": reload,
    })
}

fn missing(snapshot: &Snapshot) -> Value {
    let missing = snapshot.missing.iter().map(|(one, lasting)| {
        json!({
            "kind": one.thing.kind(),
            "name": one.thing.to_string(),
            "reason": one.reason,
            "for_s": lasting.as_secs(),
        })
    });
    missing.collect()
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

pub(super) fn listeners(snapshot: &Snapshot) -> Value {
    let listeners = snapshot.listeners.iter().map(|listener| {
        let (ana, groups) = cairn_config::ana_summary(&listener.ana);
        let (version, vlan) = match (listener.provider, listener.roce) {
            ("soft", Roce::V1 { vlan }) => (Some("v1"), vlan),
            ("soft", Roce::V2) => (Some("v2"), None),
            _ => (None, None),
        };
        let groups = groups.into_iter();
        let groups = groups.map(|(group, state)| (group.to_string(), ana_word(state)));
        json!({
            "address": listener.address.address,
            "port": listener.address.port,
            "provider": listener.provider,
            "roce": version,
            "vlan": vlan,
            "ana": ana_word(ana),
            "ana_groups": groups.collect::<BTreeMap<_, _>>(),
            "drained": listener.drained,
        })
    });
    listeners.collect()
}

pub(super) fn subsystems(config: &Config) -> Value {
    let subsystems = config.subsystems.iter().map(|subsystem| {
        let list = &subsystem.allowed_hosts;
        json!({
            "nqn": subsystem.nqn.raw(),
            "serial": subsystem.serial,
            "model": subsystem.model,
            "listeners": subsystem.listeners,
            "ana": own_states(subsystem),
            "allow_any_host": subsystem.allow_any_host,
            "require_key": subsystem.authentication.is_required,
            "hosts": single(config, list),
            "host_groups": groups(list),
            "namespaces": subsystem.namespaces.len(),
        })
    });
    subsystems.collect()
}

fn own_states(subsystem: &Subsystem) -> BTreeMap<String, BTreeMap<String, &'static str>> {
    let states = subsystem.ana.iter().map(|(listener, own)| {
        let states = own.entries().map(|(group, state)| {
            let group = group.map_or("all".to_owned(), |group| group.to_string());
            (group, ana_word(state))
        });
        (listener.to_string(), states.collect())
    });
    states.collect()
}

fn single<'a>(config: &'a Config, list: &'a HostList) -> Vec<&'a str> {
    list.single(&config.host_groups).map(Nqn::raw).collect()
}

fn groups(list: &HostList) -> Vec<&str> {
    list.groups.iter().map(|name| &**name).collect()
}

pub(super) fn hosts(snapshot: &Snapshot, nqn: &str) -> Option<Value> {
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
        rows.push(json!({
            "host": host.raw(),
            "group": group,
            "authenticates": subsystem.authentication.is_asked_of(host),
            "controllers": controllers.get(&host.to_string()).copied().unwrap_or(0),
        }));
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
    Some(json!({
        "allow_any_host": subsystem.allow_any_host,
        "hosts": rows,
    }))
}

pub(super) fn no_subsystem(nqn: &str) -> Error {
    Error::errno(Errno::NOENT, format!("the subsystem {nqn} does not exist"))
}

pub(super) fn referrals(config: &Config) -> Value {
    let referrals = config.referrals.iter().map(|referral| {
        json!({
            "address": referral.address.ip(),
            "port": referral.address.port(),
            "nqn": referral.nqn.raw(),
        })
    });
    referrals.collect()
}

pub(super) fn host_groups(config: &Config) -> Value {
    let mut uses: BTreeMap<&str, usize> = BTreeMap::new();
    for subsystem in &config.subsystems {
        let namespaces = subsystem.namespaces.iter();
        let lists = namespaces.filter_map(|one| one.hosts.list());
        for name in lists.chain([&subsystem.allowed_hosts]).flat_map(groups) {
            *uses.entry(name).or_default() += 1;
        }
    }
    let groups = config.host_groups.iter().map(|group| {
        json!({
            "name": &*group.name,
            "lists": uses.get(&*group.name).copied().unwrap_or(0),
            "hosts": group.hosts.iter().map(Nqn::raw).collect::<Vec<_>>(),
        })
    });
    groups.collect()
}

pub(super) fn namespaces(snapshot: &Snapshot) -> Value {
    let namespaces = snapshot.exports().map(|export| {
        let (config, entry) = (export.config, &export.entry);
        let list = config.hosts.list();
        let block_bytes = 1u64 << entry.view.lbads;
        json!({
            "nqn": export.nqn.raw(),
            "nsid": config.nsid,
            "name": config.name,
            "export": config.backing.to_string(),
            "bytes": entry.view.nsze * block_bytes,
            "block_bytes": block_bytes,
            "uuid": entry.namespace.uuid.to_string(),
            "read_only": config.read_only,
            "protected_by_host": entry.namespace.is_protected(),
            "ana_group": config.ana_group,
            "hosts": list.map(|list| single(&snapshot.config, list)),
            "host_groups": list.map_or(Vec::new(), groups),
            "failed": entry.namespace.backend.is_failed(),
            "deleted": entry.namespace.backend.is_deleted(),
        })
    });
    namespaces.collect()
}

pub(super) fn connections(snapshot: &Snapshot) -> Value {
    let mut all = Vec::new();
    for (nqn, shared) in &snapshot.subsystems {
        for controller in shared.view().controllers {
            let first = controller.queues.first().map(|(_, queue)| queue);
            let outstanding: u64 = controller
                .queues
                .iter()
                .map(|(_, queue)| queue.counters.depth.get())
                .sum();
            all.push(json!({
                "nqn": nqn.raw(),
                "cntlid": controller.cntlid,
                "host": controller.host_nqn,
                "peer": first.map(|queue| queue.peer.ip()),
                "local": first.map(|queue| queue.local.to_string()),
                "provider": first.map(|queue| queue.provider),
                "queues": controller.queues.len(),
                "outstanding": outstanding,
            }));
        }
    }
    Value::Array(all)
}
