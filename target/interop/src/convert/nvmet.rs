//! Import of a configuration saved by nvmetcli.

use std::path::Path;

use cairn_config::{Draft, NSID_MAX, NewListener, NewNamespace, NewSubsystem, Traddr, Trid};
use serde_json::Value;

use super::fields::Fields;
use super::{Converted, Notes, is_device};
use super::{ELSEWHERE, IN_CAPSULE_DEFAULT, NO_RDMA};

const QUEUES_OF_NVMET: u64 = 128;

/// `check_key` returns the reason why a text is not a DHCHAP key.
pub fn from_nvmet(
    saved: &Value,
    check_key: impl Fn(&str) -> Result<(), String>,
) -> Result<Converted, String> {
    let parts = saved["subsystems"].as_array().into_iter().flatten();
    if parts.clone().any(|part| part["subsystem"].is_string()) {
        return Err("error: this file is SPDK's: cairn-target import spdk FILE".into());
    }
    if !saved["subsystems"].is_array() && !saved["ports"].is_array() {
        return Err(
            "error: this is not what nvmetcli saves: it has no ports and subsystems".into(),
        );
    }
    let mut draft = Draft::new("").map_err(|error| error.to_string())?;
    let notes = Notes::default();
    let root = Fields::of("the configuration", saved, &notes);
    let hosts = root.array("hosts").iter();
    let keys: Vec<HostKeys> = hosts
        .filter_map(|host| keys_of(&notes, host, &check_key))
        .collect();
    let mut ports = Vec::new();
    for port in root.array("ports") {
        ports.extend(add_port(&mut draft, &notes, port));
    }
    if ports.is_empty() && !root.array("ports").is_empty() {
        notes.lacks(NO_RDMA);
    }
    set_in_capsule_data(&mut draft, &notes, &ports);
    for subsystem in root.array("subsystems") {
        add_subsystem(&mut draft, &notes, subsystem, &ports, &keys);
    }
    drop(root);
    Ok(notes.into_commented(&draft.text()))
}

struct HostKeys {
    host: String,
    keys: Option<(String, Option<String>)>,
}

/// Returns the keys of a host; only some versions of nvmetcli save keys.
fn keys_of(
    notes: &Notes,
    host: &Value,
    check_key: impl Fn(&str) -> Result<(), String>,
) -> Option<HostKeys> {
    let fields = Fields::of("a host", host, notes);
    let nqn = fields.text("nqn")?;
    let what = format!("host {nqn}");
    let fields = fields.named(&*what);
    let group = fields.object("dhchap");
    note_policy(notes, &group);
    let [key, controller] =
        [("dhchap_key", "key"), ("dhchap_ctrl_key", "ctrl_key")].map(|(key, grouped)| {
            let grouped = group.text(grouped);
            fields.text(key).or(grouped)
        });
    let is_readable = fields.are_readable(&[&group]);
    if is_readable && key.is_none() && controller.is_none() {
        return None;
    }
    let mut all = key.iter().chain(&controller);
    let wrong = all.find_map(|key| check_key(key).err());
    let is_alone = key
        .is_none()
        .then(|| "it has a key of the controller alone".to_owned());
    if let Some(why) = wrong.or(is_alone).filter(|_| is_readable) {
        notes.add(format!("{what}: its key is of no use: {why}"));
        return Some(HostKeys {
            host: nqn,
            keys: None,
        });
    }
    if is_readable {
        notes.add(format!(
            "{what}: its keys are in this text, and each reader of it has them: write each into a file of mode 0600, \
             and name that in its place (docs/guide-target.md, Authentication)"
        ));
    }
    Some(HostKeys {
        host: nqn,
        keys: key.filter(|_| is_readable).map(|key| (key, controller)),
    })
}

fn note_policy(notes: &Notes, group: &Fields<'_>) {
    for (key, usual) in [("hash", "hmac(sha256)"), ("dhgroup", "null")] {
        if let Some(value) = group.text(key).filter(|value| value != usual) {
            notes.add(format!(
                "{}: {key} ({value}) has no counterpart: see dhchap_hashes and dhchap_groups",
                group.what()
            ));
        }
    }
}

fn place(addr: &Fields<'_>) -> Option<Trid> {
    let transport = addr.text("trtype").unwrap_or_default();
    if transport != "rdma" {
        addr.leave_out(format_args!(
            "its transport is {transport:?}, Cairn's is \"rdma\""
        ));
        return None;
    }
    addr.ignore(&["adrfam"]);
    let address: Option<Traddr> = addr.text("traddr").and_then(|text| text.parse().ok());
    let port = addr.text("trsvcid").and_then(|text| text.parse().ok());
    if address.is_none() || port.is_none() {
        addr.leave_out("it has no IP address and port");
    }
    Some(Trid::new(address?, port?))
}

struct Port {
    at: Trid,
    subsystems: Vec<String>,
    inline_data_bytes: Option<u32>,
}

fn add_port(draft: &mut Draft, notes: &Notes, port: &Value) -> Option<Port> {
    let fields = Fields::of("a port", port, notes);
    let number = fields.number_u32("portid");
    let what = format!("port {}", number.unwrap_or(0));
    let fields = fields.named(&*what);
    for referral in fields.array("referrals") {
        add_referral(draft, notes, &what, referral);
    }
    let addr = fields.object("addr");
    let at = place(&addr)?;
    let groups = fields.array("ana_groups").iter();
    let states: Vec<(Option<u32>, String)> = groups
        .filter_map(|group| {
            let group = Fields::of(format!("{what}, ANA group"), group, notes);
            let ana = group.object("ana");
            let state = (
                group.number_u32("grpid"),
                ana.text("state").unwrap_or_default(),
            );
            group.are_readable(&[&ana]).then_some(state)
        })
        .collect();
    let subsystems = fields.texts("subsystems");
    note_treq(notes, &addr);
    let param = fields.object("param").named(format!("{what}, param"));
    // nvmet shows -1 for a size that it chooses itself.
    let inline_data_bytes = match param.text("inline_data_size").as_deref() {
        None | Some("-1") => None,
        Some(_) => param.number_u32("inline_data_size"),
    };
    if !fields.are_readable(&[&addr, &param]) {
        return None;
    }
    let new = NewListener {
        port_id: number
            .and_then(|id| u16::try_from(id).ok())
            .filter(|id| *id != 0),
        ..NewListener::at(at.address, at.port)
    };
    notes.made(draft.add_listener(&new));
    for (group, state) in states {
        if group.is_some() && state != "optimized" {
            notes.made(draft.set_ana(at.address, at.port, group, &state));
        }
    }
    Some(Port {
        at,
        subsystems,
        inline_data_bytes,
    })
}

fn set_in_capsule_data(draft: &mut Draft, notes: &Notes, ports: &[Port]) {
    let sizes = ports
        .iter()
        .map(|port| port.inline_data_bytes.unwrap_or(IN_CAPSULE_DEFAULT));
    let Some(most) = sizes.clone().max() else {
        return;
    };
    let most = super::in_capsule_data(most);
    for (port, size) in ports.iter().zip(sizes).filter(|(_, size)| *size != most) {
        notes.add(format!(
            "port {}: inline_data_size {size} is {most} here: in_capsule_data is one for all listeners",
            port.at
        ));
    }
    super::set_in_capsule_data(draft, most);
}

fn note_treq(notes: &Notes, addr: &Fields<'_>) {
    if addr.text("treq").is_some_and(|treq| treq == "required") {
        notes.add(format!(
            "{}: treq=required: over RDMA there is no secure channel",
            addr.what()
        ));
    }
}

fn add_referral(draft: &mut Draft, notes: &Notes, what: &str, referral: &Value) {
    let fields = Fields::of(format!("{what}, referral"), referral, notes);
    let name = fields.text("name").unwrap_or_default();
    let what = format!("{what}, referral {name}");
    let fields = fields.named(&*what);
    let is_enabled = fields.flag("enable") != Some(false);
    let addr = fields.object("addr");
    if !is_enabled {
        fields.leave_out_whole(format!("{what} is left out: it is not enabled"));
        return;
    }
    note_treq(notes, &addr);
    let place = place(&addr);
    let Some(place) = place.filter(|_| fields.are_readable(&[&addr])) else {
        return;
    };
    match place.unscoped() {
        Some(address) => drop(draft.add_referral(address, None)),
        None => fields.leave_out(ELSEWHERE),
    }
}

fn add_subsystem(
    draft: &mut Draft,
    notes: &Notes,
    subsystem: &Value,
    ports: &[Port],
    keys: &[HostKeys],
) {
    let fields = Fields::of("a subsystem", subsystem, notes);
    let Some(nqn) = fields.text("nqn") else {
        fields.leave_out("its name is empty");
        return;
    };
    let fields = fields.named(format!("subsystem {nqn}"));
    let attr = fields.object("attr");
    let range = ["cntlid_min", "cntlid_max"].map(|key| attr.number_u32(key));
    let leads = |port: &&Port| port.subsystems.contains(&nqn);
    let own: Vec<Trid> = ports.iter().filter(leads).map(|port| port.at).collect();
    let new = NewSubsystem {
        nqn: nqn.clone(),
        serial: attr.text("serial"),
        model: attr.text("model"),
        controller_ids: match range {
            [Some(first), Some(last)] => Some(format!("{first}-{last}")),
            _ => None,
        },
        allow_any_host: attr.flag("allow_any_host") == Some(true),
        hosts: admitted(notes, fields.texts("allowed_hosts"), keys),
        listeners: (own.len() < ports.len()).then_some(own),
    };
    notes.lacks_model(fields.what(), &new, "Linux");
    if attr
        .number("qid_max")
        .is_some_and(|queues| queues != QUEUES_OF_NVMET)
    {
        notes.add(format!("{}: qid_max has no counterpart", fields.what()));
    }
    attr.ignore(&["version", "firmware"]);
    for drive in fields.array("passthru") {
        note_passthru(notes, fields.what(), drive);
    }
    if !fields.are_readable(&[&attr]) {
        return;
    }
    let hosts = new.hosts.clone();
    notes.made(draft.add_subsystem(&new));
    for host in hosts {
        let of_host = keys.iter().find(|keys| keys.host == host);
        if let Some((key, controller)) = of_host.and_then(|of_host| of_host.keys.as_ref()) {
            let both = Some((&**key, controller.as_deref()));
            if let Err(error) = draft.set_host_keys(&nqn, &host, both) {
                notes.opens(format!(
                    "host {host} is left out of {nqn}: its key: {error}"
                ));
                notes.made(draft.remove_host(&nqn, &host));
            }
        }
    }
    for namespace in fields.array("namespaces") {
        add_namespace(draft, notes, &nqn, namespace);
    }
}

fn admitted(notes: &Notes, mut hosts: Vec<String>, keys: &[HostKeys]) -> Vec<String> {
    hosts.retain(|host| {
        let of_host = keys.iter().find(|keys| keys.host == *host);
        let is_readable = of_host.is_none_or(|of_host| of_host.keys.is_some());
        if !is_readable {
            notes.opens(format!(
                "host {host} is left out: its key cannot be converted"
            ));
        }
        is_readable
    });
    hosts
}

fn note_passthru(notes: &Notes, what: &str, drive: &Value) {
    let fields = Fields::of(what, drive, notes);
    let is_enabled = fields.flag("enable") == Some(true);
    let path = fields.object("device").text("path").unwrap_or_default();
    if is_enabled {
        notes.lacks(format!(
            "{what}: it passes {path} through, which is left out: export that drive's \
             namespaces (docs/guide-target.md, NVMe drives past the block layer)"
        ));
    }
    fields.ignore(&["admin_timeout", "clear_ids", "io_timeout"]);
}

fn add_namespace(draft: &mut Draft, notes: &Notes, nqn: &str, namespace: &Value) {
    let fields = Fields::of(format!("a namespace of {nqn}"), namespace, notes);
    let nsid = fields.number_u32("nsid").unwrap_or(0);
    let what = format!("namespace {nsid} of {nqn}");
    let fields = fields.named(&*what);
    if !(1..=NSID_MAX).contains(&nsid) {
        fields.leave_out_namespace(format_args!("Cairn's NSIDs go from 1 to {NSID_MAX}"));
        return;
    }
    let device = fields.object("device");
    let Some(path) = device.text("path") else {
        fields.leave_out_namespace("it has no path");
        return;
    };
    if fields.flag("enable") == Some(false) {
        fields.leave_out_whole(format!("{what} is left out: it is not enabled ({path})"));
        return;
    }
    let is_file = !is_device(Path::new(&path));
    let ana = fields.object("ana");
    let (group, of_ana) = (fields.number_u32("ana_grpid"), ana.number_u32("grpid"));
    let group = group.or(of_ana);
    let new = NewNamespace {
        nsid: Some(nsid),
        export: path,
        uuid: device.identity("uuid"),
        nguid: device.identity("nguid").map(|nguid| nguid.replace('-', "")),
        block_size: is_file.then_some(4096),
        ana_group: group.filter(|id| *id > 1),
        ..NewNamespace::default()
    };
    drop(fields.object("resv").named(format!("{what}, resv")));
    if !fields.are_readable(&[&device, &ana]) {
        return;
    }
    if is_file {
        notes.add(format!(
            "{what}: block_size is 4096, as nvmet has it for files on most file systems: \
             compare with the host"
        ));
    }
    notes.made(draft.add_namespace(nqn, &new));
}
