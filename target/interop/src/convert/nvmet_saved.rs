//! Export of a configuration in the format of nvmetcli.

use std::collections::BTreeSet;

use cairn_config::{
    Access, Authentication, Backing, BlockSize, Config, DhchapPolicy, HostList, KeySource, Keys,
    Listener, Namespace, Nguid, Nqn, Referral, Subsystem, Trid, ana_word,
};
use nvme_proto::limits::ANA_GROUPS_MAX;
use nvme_proto::wire::log::AnaState;
use serde_json::{Value, json};

use super::{Converted, Notes, is_device};

pub fn to_nvmet(config: &Config) -> Converted {
    let notes = Notes::default();
    let usual = notes.of_process(config, &["in_capsule_data"]);
    notes.of_policy("[target]", &config.dhchap, &usual.dhchap);
    for key in &config.keys {
        let removed = if key.is_removed { ", removed" } else { "" };
        notes.add(format!(
            "[[key]] {}{removed} ({}) has no counterpart: nvmet has no keyring",
            key.name,
            key.path.display()
        ));
    }
    let closed = config.subsystems.iter().filter(|one| !one.allow_any_host);
    let hosts = closed.flat_map(|one| one.allowed_hosts.hosts.iter());
    let hosts: BTreeSet<&str> = hosts.map(Nqn::raw).collect();
    let ports = config.listeners.iter();
    let ports: Vec<Value> = ports
        .map(|one| port(&notes, config, one, &usual.listeners[0]))
        .collect();
    let subsystems = config.subsystems.iter();
    let subsystems: Vec<Value> = subsystems
        .map(|one| subsystem(&notes, one, &config.dhchap))
        .collect();
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

/// Largest NSID and largest PORTID that nvmetcli can restore.
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

fn port(notes: &Notes, config: &Config, listener: &Listener, usual: &Listener) -> Value {
    let what = format!("listener {}", listener.trid());
    notes.of_listener(&what, listener, usual);
    if u32::from(listener.port_id) > NVMETCLI_MAX {
        notes.add(format!(
            "{what}: nvmetcli restores no port_id above {NVMETCLI_MAX}: give it another"
        ));
    }
    // nvmet itself creates only group 1, so the export lists other groups in use or not optimized.
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
    let behind = config
        .subsystems
        .iter()
        .filter(|one| one.is_behind(listener));
    let names = behind.map(|one| one.nqn.raw());
    json!({
        "portid": listener.port_id,
        "addr": addr(listener.trid()),
        "param": {"inline_data_size": config.target.in_capsule_data_bytes.to_string()},
        "ana_groups": groups.collect::<Vec<_>>(),
        "referrals": referrals(notes, &config.referrals),
        "subsystems": names.collect::<Vec<_>>(),
    })
}

fn referrals(notes: &Notes, referrals: &[Referral]) -> Value {
    let all = referrals.iter().zip(1..);
    let all = all.map(|(Referral { address, nqn }, number)| {
        if *nqn != Nqn::discovery() {
            notes.add(format!("referral {address}: its nqn has no counterpart"));
        }
        let name = format!("referral{number}");
        json!({"name": name, "addr": addr((*address).into()), "enable": 1})
    });
    all.collect()
}

fn note_keys(notes: &Notes, nqn: &str, keys: &Authentication, of_target: &DhchapPolicy) {
    let Authentication {
        others,
        hosts,
        is_required: _,
        policy,
    } = keys;
    notes.of_policy(&format!("subsystem {nqn}"), policy, of_target);
    let hosts = hosts.iter().filter(|(_, keys)| !is_inline(keys));
    let hosts = hosts.map(|(host, keys)| (format!("host {host}"), keys));
    let others = others.as_ref().map(|keys| ("its hosts".to_owned(), keys));
    for (
        who,
        Keys {
            host: _,
            controller,
        },
    ) in others.into_iter().chain(hosts)
    {
        let both = controller.as_ref().map_or("", |_| " and dhchap_ctrl_key");
        notes.opens(format!(
            "subsystem {nqn}: the keys of {who} are left out, and without dhchap_key{both} in nvmet hosts \
             connect unauthenticated: write the texts of the files there"
        ));
    }
}

fn subsystem(notes: &Notes, subsystem: &Subsystem, of_target: &DhchapPolicy) -> Value {
    let Subsystem {
        nqn,
        serial,
        model,
        controller_ids,
        allow_any_host,
        allowed_hosts: HostList { hosts, groups: _ },
        listeners: _,
        ana,
        authentication,
        limits: _,
        limits_per_host: _,
        limits_of_hosts: _,
        namespaces,
        pools,
    } = subsystem;
    let nqn = nqn.raw();
    if !ana.is_empty() {
        notes.add(format!(
            "subsystem {nqn}: its ana is left out: in nvmet all subsystems of a port have its states"
        ));
    }
    notes.of_required_key(subsystem);
    notes.of_limits(subsystem);
    note_keys(notes, nqn, authentication, of_target);
    for pool in pools {
        notes.of_pool(nqn, pool);
    }
    let mut hosts: Vec<&str> = hosts.iter().map(Nqn::raw).collect();
    if *allow_any_host && !hosts.is_empty() {
        notes.add(format!(
            "subsystem {nqn}: its list of hosts (allowed_hosts) is left out: nvmet refuses one beside \
             attr_allow_any_host"
        ));
        hosts.clear();
    }
    let namespaces = namespaces.iter();
    let namespaces = namespaces.filter_map(|one| namespace(notes, nqn, one));
    json!({
        "nqn": nqn,
        "allowed_hosts": hosts,
        "attr": {
            "allow_any_host": if *allow_any_host { "1" } else { "0" },
            "serial": serial,
            "model": model,
            "cntlid_min": controller_ids.start().to_string(),
            "cntlid_max": controller_ids.end().to_string(),
        },
        "namespaces": namespaces.collect::<Vec<_>>(),
    })
}

fn why_left_out(namespace: &Namespace) -> Option<String> {
    let why = if !matches!(namespace.backing, Backing::Disk(_)) {
        "nvmet exports files and block devices"
    } else if namespace.read_only {
        "read_only has no counterpart, and nvmet would let hosts write to it"
    } else if namespace.hosts != Access::AnyHost {
        "hosts has no counterpart, and nvmet would show it to every host of the subsystem"
    } else if namespace.nsid > NVMETCLI_MAX {
        return Some(format!("nvmetcli restores no NSID above {NVMETCLI_MAX}"));
    } else {
        return None;
    };
    Some(why.to_owned())
}

fn namespace(notes: &Notes, nqn: &str, namespace: &Namespace) -> Option<Value> {
    let what = format!("namespace {} of {nqn}", namespace.nsid);
    if let Some(why) = why_left_out(namespace) {
        notes.lacks(format!("{what} is left out: {why}"));
        return None;
    }
    let Namespace {
        nsid,
        name,
        backing,
        uuid,
        nguid,
        block_size,
        read_only: _,
        write_protection,
        write_protection_file,
        shared,
        ana_group,
        hosts: _,
        pooled: _,
        limits,
    } = namespace;
    let Backing::Disk(path) = backing else {
        return None;
    };
    // In nvmet, files have blocks of 4096 bytes, and devices keep their own block size.
    let own = (!is_device(path)).then_some(BlockSize::B4096);
    let known_nguid = namespace.known_nguid();
    let settings = [
        ("name", name.is_some()),
        ("block_size", block_size.is_some() && *block_size != own),
        ("write_protection", *write_protection),
        ("write_protection_file", write_protection_file.is_some()),
        ("shared", *shared),
        (
            "nguid = \"from-uuid\"",
            *nguid == Some(Nguid::FromUuid) && known_nguid.is_none(),
        ),
    ];
    notes.without_counterpart(&what, settings);
    notes.limits(&what, "limits", limits);
    let mut device = json!({"path": path});
    match uuid {
        Some(uuid) => device["uuid"] = json!(uuid.to_string()),
        None => notes.add(format!(
            "{what}: its uuid is the disk's own, and nvmet makes another: cairn-target namespace \
             list shows it"
        )),
    }
    if let Some(nguid) = known_nguid {
        device["nguid"] = json!(dashed(nguid));
    }
    Some(json!({
        "nsid": nsid,
        "enable": 1,
        "ana_grpid": ana_group,
        "device": device,
    }))
}

fn dashed(nguid: [u8; 16]) -> String {
    let text = format!("{:032x}", u128::from_be_bytes(nguid));
    let parts = [
        &text[..8],
        &text[8..12],
        &text[12..16],
        &text[16..20],
        &text[20..],
    ];
    parts.join("-")
}
