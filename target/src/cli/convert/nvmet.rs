//! What nvmetcli saved, as a configuration.

use std::net::{IpAddr, SocketAddr};

use cairn_config::{Draft, NSID_MAX, NewListener, NewNamespace, NewSubsystem};
use serde_json::Value;

use super::{Converted, Notes, array, identity, number, text};

/// `attr_qid_max` as Linux has it at first.
const QUEUES_OF_NVMET: u32 = 128;

pub(super) fn import(saved: &Value) -> Result<Converted, String> {
    if !saved["subsystems"].is_array() && !saved["ports"].is_array() {
        return Err(
            "error: this is not what nvmetcli saves: it has no ports and subsystems".into(),
        );
    }
    let mut draft = Draft::new("").map_err(|error| error.to_string())?;
    let mut notes = Notes::default();
    let keys: Vec<HostKeys> = array(&saved["hosts"])
        .iter()
        .filter_map(|host| keys_of(&mut notes, host))
        .collect();
    let ports = array(&saved["ports"]).iter();
    let ports = ports.filter_map(|port| Some((add_port(&mut draft, &mut notes, port)?, port)));
    let ports: Vec<(SocketAddr, &Value)> = ports.collect();
    for subsystem in array(&saved["subsystems"]) {
        add_subsystem(&mut draft, &mut notes, subsystem, &ports);
        let nqn = text(&subsystem["nqn"]).unwrap_or_default();
        for host in array(&subsystem["allowed_hosts"]).iter().filter_map(text) {
            if let Some(keys) = keys.iter().find(|keys| keys.host == host) {
                let both = (&*keys.key, keys.controller.as_deref());
                notes.made(draft.set_host_keys(&nqn, &host, Some(both)));
            }
        }
    }
    Ok(Converted {
        text: draft.text(),
        notes: notes.0,
    })
}

/// The keys of a host, which it has for all subsystems.
struct HostKeys {
    host: String,
    key: String,
    controller: Option<String>,
}

/// Of nvmetcli's versions most save no keys, and some save them in a group.
fn keys_of(notes: &mut Notes, host: &Value) -> Option<HostKeys> {
    let nqn = text(&host["nqn"])?;
    let what = format!("host {nqn}");
    notes.unknown(
        &what,
        host,
        &["nqn", "dhchap_key", "dhchap_ctrl_key", "dhchap"],
    );
    let group = &host["dhchap"];
    let key = text(&host["dhchap_key"]).or_else(|| text(&group["key"]))?;
    let controller = text(&host["dhchap_ctrl_key"]).or_else(|| text(&group["ctrl_key"]));
    notes.add(format!(
        "{what}: its keys are in this text, and each reader of it has them: write each into a file of mode 0600, \
         and name that in its place (docs/guide-target.md, Authentication)"
    ));
    Some(HostKeys {
        host: nqn,
        key,
        controller,
    })
}

/// Where a port listens, or another discovery service.
fn place(notes: &mut Notes, what: &str, addr: &Value) -> Option<(IpAddr, u16)> {
    let transport = text(&addr["trtype"]).unwrap_or_default();
    if transport != "rdma" {
        notes.add(format!(
            "{what} is left out: its transport is {transport}, Cairn's is rdma"
        ));
        return None;
    }
    let address = text(&addr["traddr"]).and_then(|text| text.parse().ok());
    let port = text(&addr["trsvcid"]).and_then(|text| text.parse().ok());
    if address.is_none() || port.is_none() {
        notes.add(format!("{what} is left out: it has no IP address and port"));
    }
    Some((address?, port?))
}

/// Where it listens, if Cairn can.
fn add_port(draft: &mut Draft, notes: &mut Notes, port: &Value) -> Option<SocketAddr> {
    let number_of = number(&port["portid"]).unwrap_or(0);
    let what = format!("port {number_of}");
    for referral in array(&port["referrals"]) {
        let name = text(&referral["name"]).unwrap_or_default();
        let what = format!("{what}, referral {name}");
        if number(&referral["enable"]) == Some(0) {
            notes.add(format!("{what} is left out: it is not enabled"));
            continue;
        }
        if let Some((address, port)) = place(notes, &what, &referral["addr"]) {
            draft.add_referral(SocketAddr::new(address, port), None);
        }
    }
    let (address, service) = place(notes, &what, &port["addr"])?;
    let new = NewListener {
        port_id: u16::try_from(number_of).ok().filter(|id| *id != 0),
        ..NewListener::at(address, service)
    };
    notes.made(draft.add_listener(&new));
    for group in array(&port["ana_groups"]) {
        let state = text(&group["ana"]["state"]).unwrap_or_default();
        let Some(id) = number(&group["grpid"]).filter(|_| state != "optimized") else {
            continue;
        };
        notes.made(draft.set_ana(address, service, Some(id), &state));
    }
    if text(&port["addr"]["treq"]).is_some_and(|treq| treq == "required") {
        notes.add(format!(
            "{what}: treq=required: over RDMA there is no secure channel"
        ));
    }
    notes.unknown(&format!("{what}, param"), &port["param"], &[]);
    Some(SocketAddr::new(address, service))
}

/// `ports`: where each listens.
fn add_subsystem(
    draft: &mut Draft,
    notes: &mut Notes,
    subsystem: &Value,
    ports: &[(SocketAddr, &Value)],
) {
    let Some(nqn) = text(&subsystem["nqn"]) else {
        notes.add("a subsystem without a name is left out");
        return;
    };
    let what = format!("subsystem {nqn}");
    let attr = &subsystem["attr"];
    let range = [&attr["cntlid_min"], &attr["cntlid_max"]].map(number);
    let hosts = array(&subsystem["allowed_hosts"]).iter().filter_map(text);
    let leads = |port: &Value| array(&port["subsystems"]).iter().any(|one| *one == *nqn);
    let own = ports.iter().filter(|(_, port)| leads(port));
    let own: Vec<SocketAddr> = own.map(|(address, _)| *address).collect();
    let new = NewSubsystem {
        nqn: nqn.clone(),
        serial: text(&attr["serial"]),
        model: text(&attr["model"]),
        controller_ids: match range {
            [Some(first), Some(last)] => Some(format!("{first}-{last}")),
            _ => None,
        },
        allow_any_host: number(&attr["allow_any_host"]) == Some(1),
        hosts: hosts.collect(),
        listeners: (own.len() < ports.len()).then_some(own),
    };
    // The version of NVMe is each target's own.
    let known = [
        "serial",
        "model",
        "cntlid_min",
        "cntlid_max",
        "allow_any_host",
        "version",
        "firmware",
        "qid_max",
    ];
    notes.unknown(&what, attr, &known);
    if number(&attr["qid_max"]).is_some_and(|queues| queues != QUEUES_OF_NVMET) {
        notes.add(format!("{what}: qid_max has no counterpart"));
    }
    for drive in array(&subsystem["passthru"]) {
        if number(&drive["enable"]) == Some(1) {
            let path = text(&drive["device"]["path"]).unwrap_or_default();
            notes.add(format!(
                "{what}: it passes {path} through, which is left out: export that drive's \
                 namespaces (docs/guide-target.md, NVMe drives past the block layer)"
            ));
        }
    }
    notes.made(draft.add_subsystem(&new));
    for namespace in array(&subsystem["namespaces"]) {
        add_namespace(draft, notes, &nqn, namespace);
    }
}

fn add_namespace(draft: &mut Draft, notes: &mut Notes, nqn: &str, namespace: &Value) {
    let device = &namespace["device"];
    let nsid = number(&namespace["nsid"]).unwrap_or(0);
    let what = format!("namespace {nsid} of {nqn}");
    if !(1..=NSID_MAX).contains(&nsid) {
        notes.add(format!(
            "{what} is left out: Cairn's NSIDs go from 1 to {NSID_MAX}"
        ));
        return;
    }
    let Some(path) = text(&device["path"]) else {
        notes.add(format!("{what} is left out: it has no path"));
        return;
    };
    if number(&namespace["enable"]) == Some(0) {
        notes.add(format!("{what} is left out: it is not enabled ({path})"));
        return;
    }
    let is_file = !path.starts_with("/dev/");
    if is_file {
        notes.add(format!(
            "{what}: block_size is 4096, as nvmet has it for files on most file systems: \
             compare with the host"
        ));
    }
    let group = [&namespace["ana_grpid"], &namespace["ana"]["grpid"]];
    let new = NewNamespace {
        nsid: Some(nsid),
        export: path,
        uuid: identity(&device["uuid"]),
        nguid: identity(&device["nguid"]).map(|nguid| nguid.replace('-', "")),
        block_size: is_file.then_some(4096),
        ana_group: group.into_iter().find_map(number).filter(|id| *id > 1),
        ..NewNamespace::default()
    };
    notes.unknown(&what, device, &["path", "uuid", "nguid"]);
    let known = ["device", "nsid", "enable", "ana_grpid", "ana", "resv"];
    notes.unknown(&what, namespace, &known);
    notes.unknown(&format!("{what}, resv"), &namespace["resv"], &[]);
    notes.made(draft.add_namespace(nqn, &new));
}
