//! For each key of the schema, an export followed by an import keeps the key, or a note names it.

use std::collections::BTreeSet;

use cairn_config::{AnaOverride, AnaStates, Config, Flags, Nguid, schema};
use cairn_interop::{Converted, from_nvmet, from_spdk, to_nvmet, to_spdk};
use serde_json::Value;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table};

const BASE: &str = r#"
[[listener]]
address = "192.0.2.1"
[[listener]]
address = "192.0.2.2"
[[referral]]
address = "192.0.2.9"
[[subsystem]]
nqn = "nqn.2024-01.com.example:a"
allowed_hosts = ["nqn.2024-01.com.example:h"]
[[subsystem.namespace]]
nsid = 1
export = "/dev/cairn-none"
uuid = "26ffc8ce-73b4-321d-9685-7d7a9872c460"
[[subsystem]]
nqn = "nqn.2024-01.com.example:b"
allow_any_host = true
"#;

fn nvmet(saved: &Value) -> Result<Converted, String> {
    from_nvmet(saved, |_| Ok(()))
}

type Key = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static str,
);

/// Keys of the schema, each with a value other than the default, other settings that it needs, and
/// the note's expected text. An empty text stands for the last part of the key.
const KEYS: &[Key] = &[
    ("audit.datagram", "'/run/audit'", &[], ""),
    ("audit.file", "'/var/log/audit'", &[], ""),
    ("audit.journal", "true", &[], ""),
    ("control.exports", "['/srv/']", &[], ""),
    ("control.group", "'disk'", &[], ""),
    ("control.read_only", "true", &[], ""),
    ("control.socket", "'/run/other.sock'", &[], ""),
    (
        "host_group.hosts",
        HOSTS,
        &[("host_group.name", "'g'")],
        "[[host_group]] g",
    ),
    ("host_group.name", "'g'", &[], "[[host_group]] g"),
    ("key.name", "'k'", &[("key.path", "'/etc/k'")], "[[key]] k"),
    (
        "key.path",
        "'/etc/k'",
        &[("key.name", "'k'")],
        "[[key]] k (/etc/k)",
    ),
    ("key.removed", "true", KEY, ""),
    ("listener.address", "'192.0.2.7'", &[], ""),
    ("listener.allowed_addresses", "['192.0.2.0/24']", &[], ""),
    ("listener.ana", "'inaccessible'", &[], ""),
    (
        "listener.ana_group.id",
        "3",
        &[("listener.ana_group.state", "'inaccessible'")],
        "",
    ),
    (
        "listener.ana_group.state",
        "'non-optimized'",
        &[("listener.ana_group.id", "3")],
        "",
    ),
    ("listener.backlog", "7", &[], ""),
    ("listener.dscp", "7", &[], ""),
    ("listener.hop_limit", "7", &[], ""),
    ("listener.pkey", "0x8001", &[], ""),
    ("listener.port", "4421", &[], ""),
    ("listener.port_id", "7", &[], ""),
    ("listener.provider", "'soft'", &[], ""),
    ("listener.roce", "'v2'", &[], ""),
    ("listener.tos", "7", &[], ""),
    ("listener.vlan", "7", &[("listener.roce", "'v1'")], ""),
    (
        "marking.rules",
        "['tclass=104,dst_ip=192.0.2.0/24']",
        &[],
        "",
    ),
    ("metrics.listen", "'127.0.0.1'", &[], ""),
    ("referral.address", "'192.0.2.8'", &[], ""),
    ("referral.nqn", "'nqn.2024-01.com.example:d'", &[], ""),
    ("referral.port", "4421", &[], ""),
    ("subsystem.allow_any_host", "true", &[], "allowed_hosts"),
    (
        "subsystem.allowed_hosts",
        "['nqn.2024-01.com.example:i']",
        &[],
        "",
    ),
    ("subsystem.ana.ana_group", "3", ANA, "its ana is left out"),
    (
        "subsystem.ana.listener",
        "'192.0.2.2'",
        ANA,
        "its ana is left out",
    ),
    (
        "subsystem.ana.state",
        "'inaccessible'",
        ANA,
        "its ana is left out",
    ),
    ("subsystem.controller_ids", "'1-100'", &[], ""),
    ("subsystem.dhchap_ctrl_key", "'key:k'", KEYED, ""),
    ("subsystem.dhchap_groups", "['ffdhe2048']", KEYED, ""),
    ("subsystem.dhchap_hashes", "['sha512']", KEYED, ""),
    ("subsystem.dhchap_key", "'key:k'", KEY, ""),
    ("subsystem.host.dhchap_ctrl_key", "'key:k'", KEYED_HOST, ""),
    ("subsystem.host.dhchap_key", "'key:k'", KEYED_HOST, ""),
    (
        "subsystem.host.nqn",
        "'nqn.2024-01.com.example:h'",
        KEYED_HOST,
        "host nqn.2024-01.com.example:h",
    ),
    ("subsystem.limited_host.limits.burst_ms", "7", LIMITED, ""),
    ("subsystem.limited_host.limits.iops", "7", LIMITED, ""),
    ("subsystem.limited_host.limits.read", "'7MiB'", LIMITED, ""),
    ("subsystem.limited_host.limits.total", "'7MiB'", LIMITED, ""),
    ("subsystem.limited_host.limits.write", "'7MiB'", LIMITED, ""),
    (
        "subsystem.limited_host.nqn",
        "'nqn.2024-01.com.example:h'",
        &[],
        "limited_host",
    ),
    ("subsystem.limited_host.weight", "7", LIMITED, ""),
    (
        "subsystem.limits.burst_ms",
        "7",
        &[("subsystem.limits.iops", "7")],
        "",
    ),
    ("subsystem.limits.iops", "7", &[], ""),
    ("subsystem.limits.read", "'7MiB'", &[], ""),
    ("subsystem.limits.total", "'7MiB'", &[], ""),
    ("subsystem.limits.write", "'7MiB'", &[], ""),
    (
        "subsystem.limits_per_host.burst_ms",
        "7",
        &[("subsystem.limits_per_host.iops", "7")],
        "",
    ),
    ("subsystem.limits_per_host.iops", "7", &[], ""),
    ("subsystem.limits_per_host.read", "'7MiB'", &[], ""),
    ("subsystem.limits_per_host.total", "'7MiB'", &[], ""),
    ("subsystem.limits_per_host.write", "'7MiB'", &[], ""),
    ("subsystem.listeners", "['192.0.2.2']", &[], ""),
    ("subsystem.model", "'M'", &[], ""),
    ("subsystem.namespace.ana_group", "3", &[], ""),
    ("subsystem.namespace.block_size", "4096", &[], ""),
    ("subsystem.namespace.ceph.conf", "'/etc/c'", IMAGE, NO_IMAGE),
    ("subsystem.namespace.ceph.id", "'u'", IMAGE, NO_IMAGE),
    (
        "subsystem.namespace.ceph.keyring",
        "'/etc/k'",
        IMAGE,
        NO_IMAGE,
    ),
    (
        "subsystem.namespace.ceph.options",
        "{ rbd_readahead_max_bytes = '0' }",
        IMAGE,
        NO_IMAGE,
    ),
    ("subsystem.namespace.export", "'/dev/cairn-other'", &[], ""),
    ("subsystem.namespace.hosts", HOSTS, &[], ""),
    (
        "subsystem.namespace.limits.burst_ms",
        "7",
        &[("subsystem.namespace.limits.iops", "7000")],
        "",
    ),
    ("subsystem.namespace.limits.iops", "7000", &[], ""),
    ("subsystem.namespace.limits.outstanding", "7", &[], ""),
    ("subsystem.namespace.limits.read", "'7MiB'", &[], ""),
    ("subsystem.namespace.limits.total", "'7MiB'", &[], ""),
    ("subsystem.namespace.limits.write", "'7MiB'", &[], ""),
    ("subsystem.namespace.name", "'other'", &[], ""),
    (
        "subsystem.namespace.nguid",
        "'5b722b05e9b6542dba8062010b57775d'",
        &[],
        "",
    ),
    ("subsystem.namespace.nsid", "7", &[], ""),
    ("subsystem.namespace.read_only", "true", &[], ""),
    ("subsystem.namespace.shared", "true", &[], ""),
    (
        "subsystem.namespace.uuid",
        "'26ffc8ce-73b4-321d-9685-7d7a9872c461'",
        &[],
        "",
    ),
    ("subsystem.namespace.write_protection", "true", &[], ""),
    (
        "subsystem.namespace.write_protection_file",
        "'/var/lib/w'",
        &[("subsystem.namespace.write_protection", "true")],
        "",
    ),
    ("subsystem.nqn", "'nqn.2024-01.com.example:c'", &[], ""),
    ("subsystem.require_key", "true", &[], ""),
    ("subsystem.serial", "'S'", &[], ""),
    ("target.congestion_control", "'off'", &[], ""),
    ("target.cores", "[0]", &[], ""),
    ("target.data_buffers", "'32MiB'", &[], ""),
    ("target.dhchap_groups", "['ffdhe2048']", &[], ""),
    ("target.dhchap_hashes", "['sha512']", &[], ""),
    (
        "target.discovery_nqn",
        "'nqn.2024-01.com.example:d'",
        &[],
        "",
    ),
    ("target.in_capsule_data", "'8KiB'", &[], ""),
    ("target.io_queues", "7", &[], ""),
    ("target.ack_timeout_ms", "50", &[], ""),
    ("target.io_timeout_s", "7", &[], ""),
    ("target.log", "'warn'", &[], ""),
    ("target.log_format", "'json'", &[], ""),
    ("target.mdts", "'64KiB'", &[], ""),
    ("target.poll_drives", "true", &[], ""),
    ("target.poll_idle_us", "7", &[], ""),
    ("target.provider", "'soft'", &[], ""),
    ("target.queue_depth", "64", &[], ""),
    ("target.reactors", "1", &[], ""),
    ("target.receives", "512", &[], ""),
    ("target.roce", "'v1'", &[], ""),
    ("target.segmentation_offload", "'off'", &[], ""),
    ("target.state_directory", "'/var/lib/s'", &[], ""),
    ("target.send_with_invalidate", "'never'", &[], ""),
    ("target.vlan", "7", &[("target.roce", "'v1'")], ""),
];

/// Keys of the schema that are invalid everywhere, because `outstanding` limits only namespaces.
const REFUSED: [&str; 3] = [
    "subsystem.limits.outstanding",
    "subsystem.limits_per_host.outstanding",
    "subsystem.limited_host.limits.outstanding",
];

const HOSTS: &str = "['nqn.2024-01.com.example:h']";
const KEY: &[(&str, &str)] = &[("key.name", "'k'"), ("key.path", "'/etc/k'")];
const KEYED: &[(&str, &str)] = &[
    ("key.name", "'k'"),
    ("key.path", "'/etc/k'"),
    ("subsystem.dhchap_key", "'key:k'"),
];
const KEYED_HOST: &[(&str, &str)] = &[
    ("key.name", "'k'"),
    ("key.path", "'/etc/k'"),
    ("subsystem.host.nqn", "'nqn.2024-01.com.example:h'"),
    ("subsystem.host.dhchap_key", "'key:k'"),
];
const ANA: &[(&str, &str)] = &[
    ("subsystem.ana.listener", "'192.0.2.1'"),
    ("subsystem.ana.state", "'non-optimized'"),
];
const LIMITED: &[(&str, &str)] = &[
    ("subsystem.limited_host.nqn", "'nqn.2024-01.com.example:h'"),
    ("subsystem.limited_host.limits.iops", "9"),
];
const IMAGE: &[(&str, &str)] = &[("subsystem.namespace.export", "'rbd:pool/image'")];
const NO_IMAGE: &str = "namespace 1 of nqn.2024-01.com.example:a is left out: nvmet exports files";

fn keys(root: &Value, part: &Value, path: &str, all: &mut BTreeSet<String>) {
    let at = |one: &Value| match one["$ref"].as_str() {
        Some(name) => root["$defs"][name.trim_start_matches("#/$defs/")].clone(),
        None => one.clone(),
    };
    for (key, value) in part["properties"].as_object().unwrap() {
        let path = format!("{path}{key}");
        let item = value.get("items").unwrap_or(value);
        let inner = at(item);
        match inner.get("properties") {
            Some(_) => keys(root, &inner, &format!("{path}."), all),
            None => drop(all.insert(path)),
        }
    }
}

fn set(document: &mut DocumentMut, path: &str, value: &str) {
    const ARRAYS: [&str; 9] = [
        "listener",
        "ana_group",
        "referral",
        "key",
        "host_group",
        "subsystem",
        "namespace",
        "host",
        "limited_host",
    ];
    let mut parts: Vec<&str> = path.split('.').collect();
    let key = parts.pop().unwrap();
    let mut table = document.as_table_mut();
    for (depth, part) in parts.iter().enumerate() {
        let is_array = ARRAYS.contains(part) || (*part == "ana" && depth == 1);
        let item = table.entry(part).or_insert_with(|| match is_array {
            true => Item::ArrayOfTables(ArrayOfTables::new()),
            false => Item::Table(Table::new()),
        });
        table = match item {
            Item::ArrayOfTables(tables) => {
                if tables.is_empty() {
                    tables.push(Table::new());
                }
                tables.get_mut(0).unwrap()
            }
            other => other.as_table_mut().unwrap(),
        };
    }
    table[key] = Item::Value(value.parse().unwrap());
}

fn with(base: &str, settings: &[(&str, &str)]) -> String {
    let mut document: DocumentMut = base.parse().unwrap();
    for (path, value) in settings {
        set(&mut document, path, value);
    }
    document.to_string()
}

fn parse(text: &str) -> Config {
    let parsed = Config::parse("test", text, &Flags::default());
    parsed.unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn plain(mut config: Config) -> Config {
    let listeners = config.listeners.clone();
    for subsystem in &mut config.subsystems {
        let whole = |states: AnaStates| AnaOverride {
            all: None,
            groups: (1..=128).map(|group| (group, states.get(group))).collect(),
        };
        let states = listeners.iter();
        let states = states.map(|one| (one.trid(), whole(subsystem.ana_at(one))));
        subsystem.ana = states.collect();
        if let Some(others) = subsystem.authentication.others.take() {
            let hosts = subsystem.allowed_hosts.hosts.iter();
            let hosts = hosts.map(|host| (*host, others.clone()));
            subsystem.authentication.hosts.extend(hosts);
        }
        for namespace in &mut subsystem.namespaces {
            namespace.nguid = namespace.known_nguid().map(Nguid::Given);
        }
    }
    for listener in &mut config.listeners {
        listener.ana = AnaStates::all(nvme_proto::wire::log::AnaState::OPTIMIZED);
    }
    config
}

fn is_named(notes: &[String], key: &str, said: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let has_word = |note: &String| note.split(|c| !is_part(c)).any(|word| word == key);
    let is_said = |note: &String| !said.is_empty() && note.contains(said);
    notes.iter().any(|note| has_word(note) || is_said(note))
}

type To = fn(&Config) -> Converted;
type From = fn(&Value) -> Result<Converted, String>;

fn there_and_back(config: &Config, to: To, from: From) -> (Vec<String>, Config) {
    let exported = to(config);
    let imported = from(&serde_json::from_str(&exported.text).unwrap()).unwrap();
    let mut notes = exported.notes;
    notes.extend(imported.notes);
    (notes, parse(&imported.text))
}

fn each_key_is_kept_or_named(base: &str, to: To, from: From) {
    let plain_base = plain(parse(base));
    let (notes, again) = there_and_back(&parse(base), to, from);
    assert_eq!(notes, [""; 0]);
    assert_eq!(plain(again), plain_base);
    let mut lost = Vec::new();
    for (path, value, required, said) in KEYS {
        let mut settings = required.to_vec();
        settings.push((path, value));
        let config = match Config::parse("test", &with(base, &settings), &Flags::default()) {
            Ok(config) => config,
            Err(error) => panic!("{path}: {error}"),
        };
        let key = path.rsplit('.').next().unwrap();
        let (notes, again) = there_and_back(&config, to, from);
        if !is_named(&notes, key, said) {
            assert_ne!(config, parse(base), "{path} changes nothing");
            if plain(again) != plain(config) {
                lost.push(format!("{path}: {notes:?}"));
            }
        }
    }
    assert!(lost.is_empty(), "{lost:#?}");
}

#[test]
fn each_key_of_the_schema_is_tested() {
    let root: Value = serde_json::from_str(&schema()).unwrap();
    let mut all = BTreeSet::new();
    keys(&root, &root, "", &mut all);
    let tested = KEYS.iter().map(|(path, ..)| *path).chain(REFUSED);
    let tested: BTreeSet<String> = tested.map(str::to_owned).collect();
    assert_eq!(tested, all);
    for path in REFUSED {
        let text = with(BASE, &[(LIMITED[0]), (path, "7")]);
        assert!(
            Config::parse("test", &text, &Flags::default()).is_err(),
            "{path}"
        );
    }
}

#[test]
fn each_key_is_kept_by_nvmet_or_named() {
    each_key_is_kept_or_named(BASE, to_nvmet, nvmet);
    let config = parse(&with(BASE, &[("target.in_capsule_data", "'8KiB'")]));
    let (notes, again) = there_and_back(&config, to_nvmet, nvmet);
    assert_eq!((notes, plain(again)), (Vec::new(), plain(config)));
}

#[test]
fn each_key_is_kept_by_spdk_or_named() {
    let base = with(BASE, &[("subsystem.namespace.name", "'disk'")]);
    each_key_is_kept_or_named(&base, to_spdk, from_spdk);
}

#[test]
fn directories_and_identities_of_disks_are_named() {
    let text = "[[listener]]\naddress = \"192.0.2.1\"\n[[subsystem]]\n\
                nqn = \"nqn.2024-01.com.example:a\"\nallow_any_host = true\n\
                [[subsystem.namespace]]\nnsid = 1\nexport = \"/dev/cairn-none\"\n\
                nguid = \"from-uuid\"\n\
                [[subsystem.namespace]]\nnsid = 5\nexport = \"dir:/srv\"\n";
    for to in [to_nvmet, to_spdk] as [To; 2] {
        let notes = to(&parse(text)).notes;
        let expected = [
            "namespace 1 of nqn.2024-01.com.example:a: its uuid is",
            "namespace 1 of nqn.2024-01.com.example:a: nguid = \"from-uuid\" has",
            "namespace 5 of nqn.2024-01.com.example:a is left out: only Cairn",
        ];
        for part in expected {
            let is_it = |note: &String| note.contains(part);
            assert!(notes.iter().any(is_it), "{part:?} in {notes:?}");
        }
        assert_eq!(notes.len(), expected.len(), "{notes:?}");
    }
}

fn objects(value: &Value, at: &str, all: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            all.push(at.to_owned());
            for (key, member) in members {
                objects(member, &format!("{at}/{key}"), all);
            }
        }
        Value::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                objects(element, &format!("{at}/{index}"), all);
            }
        }
        _ => {}
    }
}

fn each_unknown_key_is_named(saved: &Value, from: From) {
    let usual = from(saved).unwrap();
    let mut places = Vec::new();
    objects(saved, "", &mut places);
    for place in places {
        let mut more = saved.clone();
        more.pointer_mut(&place).unwrap()["unheard_of"] = "word".into();
        let converted = from(&more).unwrap();
        let notes = &converted.notes;
        let is_carried = converted.text.contains("unheard_of = \"word\"");
        let is_named = is_named(notes, "unheard_of", "");
        assert!(is_named || is_carried, "{place}: {notes:?}");
        let in_comment = |line: &str| line.starts_with("# ") && line.contains("unheard_of");
        assert!(
            is_carried || converted.text.lines().any(in_comment),
            "{place}"
        );
        assert!(
            is_carried || parse(&converted.text) == parse(&usual.text),
            "{place}"
        );
    }
}

#[test]
fn each_unknown_key_of_nvmet_is_named() {
    let addr =
        r#""addr": {"adrfam": "ipv4", "traddr": "192.0.2.1", "trsvcid": "4420", "trtype": "rdma"}"#;
    let saved = format!(
        r#"{{
        "hosts": [{{"nqn": "nqn.2024-01.com.example:h", "dhchap": {{"key": "DHHC-1:00:MA==:"}}}}],
        "ports": [{{
            "portid": 1, {addr}, "param": {{}}, "subsystems": ["nqn.2024-01.com.example:a"],
            "ana_groups": [{{"grpid": 1, "ana": {{"state": "optimized"}}}}],
            "referrals": [{{"name": "r", "enable": 1, {addr}}}]
        }}],
        "subsystems": [{{
            "nqn": "nqn.2024-01.com.example:a", "attr": {{"allow_any_host": "1"}},
            "passthru": [{{"enable": 0, "device": {{"path": "/dev/nvme0"}}}}],
            "namespaces": [{{
                "nsid": 1, "enable": 1, "device": {{"path": "/dev/cairn-none"}},
                "ana": {{"grpid": 1}}, "resv": {{}}
            }}]
        }}]}}"#
    );
    each_unknown_key_is_named(&serde_json::from_str(&saved).unwrap(), nvmet);
}

#[test]
fn each_unknown_key_of_spdk_is_named() {
    let group = [("subsystem.ana.ana_group", "3")];
    let settings = KEYED_HOST.iter().chain(ANA).chain(&group);
    let settings: Vec<_> = settings.copied().collect();
    let text = with(BASE, &settings);
    let images = [
        ("subsystem.namespace.name", "'image'"),
        ("subsystem.namespace.export", "'rbd:pool/image'"),
        ("subsystem.namespace.ceph.conf", "'/etc/c'"),
        (
            "subsystem.namespace.ceph.options",
            "{ rbd_readahead_max_bytes = '0' }",
        ),
        ("subsystem.namespace.hosts", HOSTS),
        ("subsystem.namespace.limits.iops", "7000"),
    ];
    let mut saved: Value =
        serde_json::from_str(&to_spdk(&parse(&with(&text, &images))).text).unwrap();
    let nvmf = saved["subsystems"][2]["config"].as_array_mut().unwrap();
    nvmf.push(serde_json::json!({
        "method": "nvmf_subsystem_allow_any_host",
        "params": {"nqn": "nqn.2024-01.com.example:b", "allow_any_host": true},
    }));
    each_unknown_key_is_named(&saved, from_spdk);
}

#[test]
fn notes_stay_comments() {
    let saved = serde_json::json!({
        "ports": [], "subsystems": [], "x\n[target]\nlog": "word",
    });
    let text = nvmet(&saved).unwrap().text;
    assert!(
        text.lines()
            .all(|line| line.is_empty() || line.starts_with("# ")),
        "{text}"
    );
}
