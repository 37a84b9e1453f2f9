//! Valid configurations, and the values parsed from them.

use std::path::Path;
use std::time::Duration;

use cairn_config::{
    Backing, BlockSize, Config, Flags, HostList, ImageSpec, LogFormat, Nguid, Nqn, Provider,
    Reactors,
};
use cairn_rdma::PKey;
use nvme_proto::wire::log::AnaState;

const EVERYTHING: &str = include_str!("../examples/everything.toml");
const MINIMAL: &str = include_str!("../examples/minimal.toml");

fn parse(text: &str) -> Config {
    Config::parse("test.toml", text, &Flags::default()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_example_is_right() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut count = 0;
    for entry in examples.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if let Err(error) = Config::from_file(&path, &Flags::default()) {
            panic!("{error}");
        }
        count += 1;
    }
    assert!(count >= 3, "only {count} examples");
}

#[test]
#[expect(clippy::too_many_lines, reason = "one assertion for each key")]
fn every_value_arrives() {
    let config = parse(EVERYTHING);
    let target = &config.target;
    assert_eq!(target.reactors, Reactors::Auto);
    assert_eq!(target.poll_idle, Duration::from_micros(500));
    assert!(!target.poll_drives);
    assert_eq!(target.io_timeout, Duration::from_secs(30));
    assert_eq!(target.data_buffers_bytes, 16 << 20);
    assert_eq!(target.receives, 1024);
    assert_eq!(target.in_capsule_data_bytes, 4096);
    assert_eq!(target.max_transfer_bytes, 1 << 20);
    assert_eq!(target.mdts(), 8);
    assert_eq!((target.queue_depth, target.io_queues), (128, 128));
    assert_eq!(
        (target.log.filter.as_str(), target.log.format),
        ("info", LogFormat::Text)
    );

    let rules: Vec<String> = config.marking.iter().map(ToString::to_string).collect();
    assert_eq!(
        rules,
        [
            "tclass=32,host_nqn=nqn.2024-01.com.example:a-host",
            "tclass=96,hop_limit=2,src_ip=192.0.2.1,dst_ip=192.0.2.0/25",
            "tclass=104",
        ]
    );

    let listener = &config.listeners[0];
    assert_eq!(listener.trid(), "192.0.2.1:4420".parse().unwrap());
    assert_eq!(listener.provider, Provider::Verbs);
    assert_eq!(listener.traffic_class, Some(96));
    assert_eq!(listener.hop_limit, Some(64));
    assert_eq!(listener.pkey, PKey::DEFAULT);
    assert_eq!(listener.backlog, 128);
    let allowed = ["192.0.2.9", "198.51.100.7", "198.51.100.8", "::1"];
    let allowed = allowed.map(|host| listener.allows(host.parse().unwrap()));
    assert_eq!(allowed, [true, true, false, false]);

    let referral = &config.referrals[0];
    assert_eq!(referral.address.to_string(), "192.0.2.2:4420");
    assert_eq!(referral.nqn, Nqn::discovery());
    let subsystem = &config.subsystems[0];
    assert_eq!(subsystem.nqn.raw(), "nqn.2024-01.com.example:everything");
    assert_eq!(
        (subsystem.serial.as_str(), subsystem.model.as_str()),
        ("0001", "Cairn")
    );
    let states = subsystem.ana_at(listener);
    let wanted = [
        AnaState::OPTIMIZED,
        AnaState::NON_OPTIMIZED,
        AnaState::INACCESSIBLE,
        AnaState::OPTIMIZED,
    ];
    assert_eq!([1, 2, 3, 4].map(|group| states.get(group)), wanted);
    let listeners = subsystem.listeners.as_deref().unwrap();
    assert_eq!(listeners, [config.listeners[0].trid()]);
    assert!(subsystem.allows(&"nqn.2024-01.com.example:a-host".parse().unwrap()));
    assert!(!subsystem.allows(&"nqn.2024-01.com.example:b-host".parse().unwrap()));

    let [disk, memory, null, image] = &subsystem.namespaces[..] else {
        panic!("four namespaces")
    };
    assert_eq!(disk.nsid, 1);
    assert_eq!(disk.backing, Backing::Disk("/srv/disk.img".into()));
    assert_eq!(
        disk.uuid.map(|uuid| uuid.to_string()).as_deref(),
        Some("5f0c1d3e-52a4-4f0b-9b57-6f9b5a1d2c33")
    );
    assert_eq!(
        disk.nguid,
        Some(Nguid::Given(
            0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.to_be_bytes()
        ))
    );
    assert_eq!(disk.block_size, Some(BlockSize::B4096));
    assert_eq!(
        (memory.nsid, &memory.backing),
        (2, &Backing::Memory { bytes: 1 << 30 })
    );
    assert_eq!(
        (null.nsid, &null.backing),
        (3, &Backing::Null { bytes: 1 << 40 })
    );
    assert_eq!(null.block_size.map(BlockSize::bytes), Some(512));
    let snapshot = ImageSpec {
        pool: "disks".into(),
        namespace: Some("team-a".into()),
        image: "vm-7".into(),
        snapshot: Some("monday".into()),
        conf: Some("/etc/ceph/ceph.conf".into()),
        user: Some("cairn".into()),
        keyring: Some("/etc/ceph/cairn.keyring".into()),
        options: vec![("rbd_readahead_max_bytes".into(), "0".into())],
    };
    assert_eq!(image.backing, Backing::Rbd(snapshot));
    assert!(image.read_only, "no host writes to a snapshot");
}

#[test]
fn the_schema_has_the_defaults() {
    let schema: serde_json::Value = serde_json::from_str(&cairn_config::schema()).unwrap();
    let config = parse(MINIMAL);
    let mut count = 0;
    for (table, definition) in [
        ("[target]", "TargetTable"),
        ("[[listener]]\naddress = \"192.0.2.1\"", "ListenerTable"),
        ("[[subsystem]]", "SubsystemTable"),
        ("[[subsystem.namespace]]", "NamespaceTable"),
    ] {
        let properties = schema["$defs"][definition]["properties"]
            .as_object()
            .unwrap();
        for (key, property) in properties {
            let Some(default) = property.get("default").filter(|d| !d.is_array()) else {
                continue;
            };
            let header = table.split('\n').next().unwrap();
            let explicit = if MINIMAL.contains(header) {
                MINIMAL.replacen(header, &format!("{header}\n{key} = {default}"), 1)
            } else {
                format!("{header}\n{key} = {default}\n{MINIMAL}")
            };
            assert_eq!(parse(&explicit), config, "{key} = {default}");
            count += 1;
        }
    }
    assert!(count >= 14, "only {count} defaults in the schema");
}

#[test]
fn the_checked_in_schema_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/config.schema.json");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, cairn_config::schema()).unwrap();
    }
    let checked_in = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        checked_in == cairn_config::schema(),
        "docs/config.schema.json is stale: run UPDATE_EXPECT=1 cargo test -p cairn-config"
    );
}

#[test]
fn identities_follow_from_names() {
    let (config, again) = (parse(MINIMAL), parse(MINIMAL));
    assert_eq!(config, again);
    let other = parse(&MINIMAL.replace(":scratch", ":other"));
    assert_ne!(config.subsystems[0].serial, other.subsystems[0].serial);
    assert_eq!(config.subsystems[0].namespaces[0].uuid, None);
}

#[test]
fn names_of_another_form_are_taken_with_one_warning_each() {
    assert_eq!(parse(EVERYTHING).warnings(), <[String; 0]>::default());
    let text = "listener = [{ address = \"192.0.2.1\" }]\n\
                [[subsystem]]\nnqn = \"testnqn\"\nallow_any_host = true\n\
                [[subsystem]]\nnqn = \"a\\nb\"\nallowed_hosts = [\"my-host\", \"nqn.2024-01.com:x\"]\n\
                [marking]\nrules = [\"tclass=16,host_nqn=db\"]\n";
    let config = parse(text);
    assert_eq!(config.subsystems[0].nqn.raw(), "testnqn");
    assert_eq!(
        config.warnings(),
        [
            "the subsystem's name \"testnqn\" is not an NQN: an NQN starts with \"nqn.\"",
            "the subsystem's name \"a\\nb\" is not an NQN: the name holds a control character",
            "the allowed host \"my-host\" is not an NQN: an NQN starts with \"nqn.\"",
            "host_nqn of a marking rule: \"db\" is not an NQN: an NQN starts with \"nqn.\"",
            "testnqn has no namespace: hosts that connect to it find no disk",
            "a\\nb has no namespace: hosts that connect to it find no disk",
        ]
    );
}

#[test]
fn what_serves_nothing_gets_a_warning() {
    let text = "[control]\nsocket = \"/run/example.sock\"\n";
    assert_eq!(
        parse(text).warnings(),
        [
            "there is no listener: no host can connect",
            "there is no subsystem: hosts find no disk",
        ]
    );
    let text = "listener = [{ address = \"192.0.2.1\" }]\n\
                [[subsystem]]\nnqn = \"nqn.2024-01.com.example:a\"\nallow_any_host = false\nallowed_hosts = []\n\
                namespace = [{ nsid = 1, export = \"null:1MiB\" }]\n";
    assert_eq!(
        parse(text).warnings(),
        [
            "nqn.2024-01.com.example:a allows no host: add one to allowed_hosts, or set \
             allow_any_host = true"
        ]
    );
}

#[test]
fn access_is_what_is_said() {
    let subsystem = &parse(MINIMAL).subsystems[0];
    assert!(subsystem.allow_any_host);
    assert_eq!(subsystem.allowed_hosts, HostList::default());
    let both = MINIMAL.replacen(
        "allow_any_host = true",
        "allow_any_host = true\nallowed_hosts = []",
        1,
    );
    assert_eq!(&parse(&both).subsystems[0], subsystem);
}

#[test]
fn a_subsystem_may_be_empty() {
    let text = MINIMAL.split("[[subsystem.namespace]]").next().unwrap();
    assert!(parse(text).subsystems[0].namespaces.is_empty());
}

#[test]
fn two_readers_may_share_a_disk() {
    let reader = |nsid| {
        format!("[[subsystem.namespace]]\nnsid = {nsid}\nexport = \"/srv/a\"\nread_only = true\n")
    };
    let text = MINIMAL.split("[[subsystem.namespace]]").next().unwrap();
    let config = parse(&format!("{text}{}{}", reader(2), reader(1)));
    let nsids: Vec<u32> = config.subsystems[0]
        .namespaces
        .iter()
        .map(|ns| ns.nsid)
        .collect();
    assert_eq!(nsids, [1, 2], "by ascending NSID");
}

#[test]
fn namespaces_that_no_admitted_host_sees_get_a_warning() {
    let text = |subsystem: &str, hosts: &str| {
        format!(
            "listener = [{{ address = \"192.0.2.1\" }}]\n\
             host_group = [{{ name = \"g\", hosts = [\"nqn.2024-01.com.example:a\", \"nqn.2024-01.com.example:b\"] }}]\n\
             [[subsystem]]\nnqn = \"nqn.2024-01.com.example:s\"\n{subsystem}\n\
             namespace = [{{ nsid = 1, export = \"null:1MiB\", hosts = [{hosts}] }},\
             {{ nsid = 2, export = \"null:1MiB\" }}, {{ nsid = 4, export = \"null:1MiB\", hosts = [{hosts}] }}]\n"
        )
    };
    let a = "allowed_hosts = [\"nqn.2024-01.com.example:a\"]";
    let warnings = |subsystem: &str, hosts: &str| parse(&text(subsystem, hosts)).warnings();
    let sentence = |only: &str, host: &str| {
        format!(
            "namespace 1 of nqn.2024-01.com.example:s is visible {only}to hosts that nqn.2024-01.com.example:s does \
             not admit, such as nqn.2024-01.com.example:{host}: add the host to allowed_hosts, or remove it from the \
             hosts of the namespace; the same applies to 1 more of its namespaces"
        )
    };
    let (one, other) = (
        "\"nqn.2024-01.com.example:a\"",
        "\"nqn.2024-01.com.example:x\"",
    );
    assert_eq!(warnings(a, other), [sentence("only ", "x")]);
    assert_eq!(warnings(a, &format!("{one}, {other}")), [sentence("", "x")]);
    let c = "allowed_hosts = [\"nqn.2024-01.com.example:c\"]";
    assert_eq!(warnings(c, "\"@g\""), [sentence("only ", "a")]);
    // No warning is expected, because hosts of a group may belong to other subsystems, and an empty
    // list may be filled later.
    for (subsystem, hosts) in [
        (a, one),
        (a, "\"@g\""),
        (a, ""),
        ("allow_any_host = true", other),
    ] {
        assert_eq!(
            warnings(subsystem, hosts),
            <[String; 0]>::default(),
            "{hosts}"
        );
    }
}

#[test]
fn names_and_addresses_that_lead_nowhere_get_a_warning() {
    let text = |listeners: &str, host: &str| {
        format!(
            "listener = [{listeners}]\nreferral = [{{ address = \"192.0.2.1\" }}, {{ address = \"192.0.2.2\" }}]\n\
             [[subsystem]]\nnqn = \"nqn.2024-01.com.example:s\"\nallowed_hosts = [\"{host}\"]\n\
             namespace = [{{ nsid = 1, export = \"null:1MiB\" }}]\n"
        )
    };
    let host = "nqn.2024-01.com.example:h";
    let other = "{ address = \"192.0.2.9\" }";
    let count = |listeners: &str, host: &str, words: &[&str]| {
        let warnings = parse(&text(listeners, host)).warnings();
        let has_all = |one: &&String| words.iter().all(|word| one.contains(word));
        (warnings.iter().filter(has_all).count(), warnings.len())
    };
    assert_eq!(count(other, host, &[]), (0, 0));
    let own = "{ address = \"192.0.2.1\" }";
    assert_eq!(count(own, host, &["referral to 192.0.2.1:4420"]), (1, 1));
    let own = "{ address = \"192.0.2.1\", port = 4421 }";
    assert_eq!(count(own, host, &[]), (0, 0));
    for nobody in [
        "nqn.2024-01.com.example:s",
        "nqn.2014-08.org.nvmexpress.discovery",
    ] {
        let words = [nobody, "no host has it", "/etc/nvme/hostnqn"];
        assert_eq!(count(other, nobody, &words), (1, 1), "{nobody}");
    }
    let wild = |more: &str| format!("{other}, {{ address = \"0.0.0.0\", port = 4421{more} }}");
    let words = ["0.0.0.0:4421 and 192.0.2.9:4420", "UDP port 4791"];
    assert_eq!(count(&wild(""), host, &words), (1, 1));
    assert_eq!(count(&wild(", provider = \"verbs\""), host, &[]), (0, 0));
    let ipv6 = format!("{other}, {{ address = \"::\" }}");
    assert_eq!(count(&ipv6, host, &[]), (0, 0));
}

const KEY: &str = "dhchap_key = \"/k/a\"";

fn host(name: &str) -> String {
    format!("nqn.2024-01.com.example:{name}")
}

fn with_hosts(settings: &str, hosts: &[(&str, &str)]) -> Config {
    let mut text = format!(
        "listener = [{{ address = \"192.0.2.1\" }}]\n[[subsystem]]\n\
         nqn = \"nqn.2024-01.com.example:s\"\n{settings}\n\
         namespace = [{{ nsid = 1, export = \"null:1MiB\" }}]\n"
    );
    for (nqn, keys) in hosts {
        text += &format!("[[subsystem.host]]\nnqn = \"{nqn}\"\n{keys}\n");
    }
    parse(&text)
}

#[test]
fn hosts_without_a_key_get_a_note() {
    let [a, b, c] = ["a", "b", "c"].map(host);
    let list = format!("allowed_hosts = [\"{a}\", \"{b}\", \"{c}\"]\n");
    let required = format!("{list}require_key = true");

    let some = with_hosts(&list, &[(&a, KEY)]);
    let [note] = &some.warnings()[..] else {
        panic!("{:?}", some.warnings());
    };
    assert!(
        note.contains(&format!("none for {b} (and 1 more)")),
        "{note}"
    );
    assert!(
        note.contains("every host that claims that NQN connects"),
        "{note}"
    );
    assert_eq!(some.keyless(), <[String; 0]>::default());
    assert_eq!(with_hosts(&list, &[]).warnings(), <[String; 0]>::default());

    for (settings, hosts, words) in [
        (
            &*required,
            &[][..],
            format!(
                "no host can connect to nqn.2024-01.com.example:s, which requires a key: give {a} \
                 one by"
            ),
        ),
        (
            &required,
            &[(&*a, KEY)],
            format!("the host {b} and 1 more cannot connect"),
        ),
        (
            "allow_any_host = true\nrequire_key = true",
            &[],
            "host add".to_owned(),
        ),
    ] {
        let config = with_hosts(settings, hosts);
        let keyless = config.keyless();
        assert_eq!(keyless.len(), 1, "{keyless:?}");
        assert!(keyless[0].contains(&words), "{keyless:?}");
        assert!(config.warnings().contains(&keyless[0]));
    }
    let all = format!("{required}\ndhchap_key = \"/k/all\"");
    assert_eq!(with_hosts(&all, &[]).warnings(), <[String; 0]>::default());
}

#[test]
fn keys_of_two_hosts_or_both_directions_get_a_note() {
    let [a, b] = ["a", "b"].map(host);
    let own = format!("{KEY}\ndhchap_ctrl_key = \"/k/a\"");
    let other = "dhchap_key = \"/k/b\"\ndhchap_ctrl_key = \"/k/c\"";
    let two = format!("allowed_hosts = [\"{a}\", \"{b}\"]");
    for (hosts, words) in [
        ([(&*a, KEY), (&*b, KEY)], "have the same key (/k/a)"),
        (
            [(&a, &own), (&b, other)],
            "dhchap_ctrl_key of nqn.2024-01.com.example:a at",
        ),
    ] {
        let warnings = with_hosts(&two, &hosts).warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains(words), "{warnings:?}");
    }
    assert_eq!(
        with_hosts(&two, &[(&a, KEY), (&b, other)]).warnings(),
        <[String; 0]>::default()
    );
}

#[test]
fn a_shared_disk_with_the_default_controller_ids_gets_a_note() {
    let warnings = |ids: &str, shared: bool| {
        let text = format!(
            "listener = [{{ address = \"192.0.2.1\" }}]\n[[subsystem]]\n\
             nqn = \"nqn.2024-01.com.example:s\"\nallow_any_host = true\n{ids}\n\
             namespace = [{{ nsid = 7, export = \"/srv/a\", shared = {shared} }}]\n"
        );
        parse(&text).warnings()
    };
    let notes = warnings("", true);
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].starts_with("namespace 7 of"), "{notes:?}");
    assert_eq!(
        warnings("controller_ids = \"1-100\"", true),
        <[String; 0]>::default()
    );
    assert_eq!(warnings("", false), <[String; 0]>::default());
}
