//! Export of a configuration in the format of nvmetcli.

use std::collections::BTreeSet;

use cairn_config::{
    Access, Backing, Config, KeySource, Keys, Listener, Namespace, Nqn, Subsystem, Trid, ana_word,
};
use cairn_rdma::marking::Rules;
use nvme_proto::limits::ANA_GROUPS_MAX;
use nvme_proto::wire::log::AnaState;
use serde_json::{Value, json};

use super::spdk_saved::note_required_key;
use super::{Converted, Notes};

/// Converts a configuration to JSON for `nvmetcli restore`.
pub fn to_nvmet(config: &Config) -> Converted {
    let notes = Notes::default();
    if *config.marking != Rules::default() {
        notes.add("[marking] is left out: nvmet marks no packets by rules");
    }
    let closed = config.subsystems.iter().filter(|one| !one.allow_any_host);
    let hosts = closed.flat_map(|one| one.allowed_hosts.hosts.iter());
    let hosts: BTreeSet<&str> = hosts.map(Nqn::raw).collect();
    let ports = config.listeners.iter();
    let ports: Vec<Value> = ports.map(|one| port(&notes, config, one)).collect();
    let subsystems = config.subsystems.iter();
    let subsystems: Vec<Value> = subsystems.map(|one| subsystem(&notes, one)).collect();
    let saved = json!({
        "hosts": hosts.iter().map(|nqn| host(config, nqn)).collect::<Vec<_>>(),
        "ports": ports,
        "subsystems": subsystems,
    });
    notes.into_converted(format!("{saved:#}"))
}

fn host(config: &Config, nqn: &str) -> Value {
    let mut host = json!({"nqn": nqn});
    let subsystems = config.subsystems.iter();
    let mut keys = subsystems.flat_map(|one| &one.authentication.hosts);
    let of = keys.find(|(name, keys)| name.raw() == nqn && is_inline(keys));
    if let Some((_, keys)) = of {
        let text = |key: &KeySource| match key {
            KeySource::Inline(key) => Some(key.secret().to_owned()),
            _ => None,
        };
        let controller = keys.controller.as_ref().and_then(text);
        host["dhchap"] = json!({
            "key": text(&keys.host), "ctrl_key": controller.unwrap_or_default(),
        });
    }
    host
}

fn is_inline(keys: &Keys) -> bool {
    let mut all = std::iter::once(&keys.host).chain(&keys.controller);
    all.all(|key| matches!(key, KeySource::Inline(_)))
}

/// Largest NSID and port number that nvmetcli restores.
const NVMETCLI_MAX: u32 = 8192;

fn addr(Trid { address, port }: Trid) -> Value {
    json!({
        "adrfam": if address.ip().is_ipv4() { "ipv4" } else { "ipv6" },
        "traddr": address.to_string(),
        "treq": "not specified",
        "trsvcid": port.to_string(),
        "trtype": "rdma",
    })
}

fn port(notes: &Notes, config: &Config, listener: &Listener) -> Value {
    let what = format!("listener {}", listener.trid());
    notes.of_listener(&what, listener);
    if u32::from(listener.port_id) > NVMETCLI_MAX {
        notes.add(format!(
            "{what}: nvmetcli restores no port_id above {NVMETCLI_MAX}: give it another"
        ));
    }
    // nvmet creates the first group itself, and refuses states of unknown groups.
    let used: BTreeSet<u32> = config
        .subsystems
        .iter()
        .flat_map(|subsystem| &subsystem.namespaces)
        .map(|namespace| namespace.ana_group)
        .collect();
    let is_shown = |group: &u32| {
        *group == 1 || used.contains(group) || listener.ana.get(*group) != AnaState::OPTIMIZED
    };
    let groups = (1..=ANA_GROUPS_MAX).filter(is_shown);
    let groups = groups.map(|group| {
        let state = ana_word(listener.ana.get(group));
        json!({"grpid": group, "ana": {"state": state}})
    });
    let mut referrals = Vec::new();
    for (index, referral) in config.referrals.iter().enumerate() {
        if referral.nqn != Nqn::discovery() {
            notes.add(format!(
                "referral {}: its nqn has no counterpart",
                referral.address
            ));
        }
        let name = format!("referral{}", index + 1);
        referrals.push(json!({"name": name, "addr": addr(referral.address.into()), "enable": 1}));
    }
    let behind = config
        .subsystems
        .iter()
        .filter(|one| one.is_behind(listener));
    let names = behind.map(|one| one.nqn.raw());
    json!({
        "portid": listener.port_id,
        "addr": addr(listener.trid()),
        "ana_groups": groups.collect::<Vec<_>>(),
        "referrals": referrals,
        "subsystems": names.collect::<Vec<_>>(),
    })
}

fn subsystem(notes: &Notes, subsystem: &Subsystem) -> Value {
    let nqn = subsystem.nqn.raw();
    if !subsystem.ana.is_empty() {
        notes.add(format!(
            "subsystem {nqn}: its ana is left out: in nvmet all subsystems of a port have its states"
        ));
    }
    note_required_key(notes, subsystem);
    let keys = &subsystem.authentication;
    let hosts = keys.hosts.iter().filter(|(_, keys)| !is_inline(keys));
    let hosts = hosts.map(|(host, _)| format!("host {host}"));
    let others = keys.others.as_ref().map(|_| "its hosts".to_owned());
    for who in others.into_iter().chain(hosts) {
        notes.opens(format!(
            "subsystem {nqn}: the keys of {who} are left out, and without dhchap_key in nvmet hosts connect \
             unauthenticated: write the texts of the files there"
        ));
    }
    let mut hosts: Vec<&str> = subsystem.allowed_hosts.hosts.iter().map(Nqn::raw).collect();
    if subsystem.allow_any_host && !hosts.is_empty() {
        notes.add(format!(
            "subsystem {nqn}: its list of hosts is left out: nvmet refuses one beside \
             attr_allow_any_host"
        ));
        hosts.clear();
    }
    let namespaces = subsystem.namespaces.iter();
    let namespaces = namespaces.filter_map(|one| namespace(notes, nqn, one));
    json!({
        "nqn": nqn,
        "allowed_hosts": hosts,
        "attr": {
            "allow_any_host": if subsystem.allow_any_host { "1" } else { "0" },
            "serial": subsystem.serial,
            "model": subsystem.model,
            "cntlid_min": subsystem.controller_ids.start().to_string(),
            "cntlid_max": subsystem.controller_ids.end().to_string(),
        },
        "namespaces": namespaces.collect::<Vec<_>>(),
    })
}

fn namespace(notes: &Notes, nqn: &str, namespace: &Namespace) -> Option<Value> {
    let what = format!("namespace {} of {nqn}", namespace.nsid);
    let Backing::Disk(path) = &namespace.backing else {
        notes.add(format!(
            "{what} is left out: nvmet exports files and block devices"
        ));
        return None;
    };
    if namespace.read_only {
        notes.add(format!(
            "{what} is left out: nvmet would let hosts write to it"
        ));
        return None;
    }
    if namespace.hosts != Access::AnyHost {
        notes.add(format!(
            "{what} is left out: nvmet would show it to every host of the subsystem"
        ));
        return None;
    }
    if namespace.nsid > NVMETCLI_MAX {
        notes.add(format!(
            "{what} is left out: nvmetcli restores no NSID above {NVMETCLI_MAX}"
        ));
        return None;
    }
    let mut device = json!({"path": path});
    match namespace.uuid {
        Some(uuid) => device["uuid"] = json!(uuid.to_string()),
        None => notes.add(format!(
            "{what}: its uuid is the disk's own, and nvmet makes another: cairn-target namespace \
             list shows it"
        )),
    }
    if let Some(nguid) = namespace.known_nguid() {
        let text = format!("{:032x}", u128::from_be_bytes(nguid));
        let dashed = [
            &text[..8],
            &text[8..12],
            &text[12..16],
            &text[16..20],
            &text[20..],
        ];
        device["nguid"] = json!(dashed.join("-"));
    }
    Some(json!({
        "nsid": namespace.nsid,
        "enable": 1,
        "ana_grpid": namespace.ana_group,
        "device": device,
    }))
}
