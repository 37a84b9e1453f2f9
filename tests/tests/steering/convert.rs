use std::path::{Path, PathBuf};

use cairn_config::{Access, AnaStates, Backing, Config, Flags, KeySource};
use cairn_tests::process::program;
use nvme_proto::wire::log::AnaState;
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const PARTIAL: i32 = 4;

pub(crate) fn say(args: &[&str], file: &Path) -> (Option<i32>, String, String) {
    let output = std::process::Command::new(program("cairn-target-process"))
        .args(args)
        .arg(file)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

pub(crate) fn written(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

pub(crate) fn parse(text: &str) -> Config {
    let parsed = Config::parse("imported", text, &Flags::default());
    parsed.unwrap_or_else(|error| panic!("{error}\n{text}"))
}

pub(crate) fn nvmet_addr(transport: &str, address: &str) -> Value {
    json!({
        "adrfam": "ipv4", "traddr": address, "treq": "not specified", "trsvcid": "4420",
        "trtype": transport, "tsas": "none",
    })
}

const KEY: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

fn nvmet_ports() -> Value {
    let referral = |address: &str, enable: u8, name: &str| json!({"addr": nvmet_addr("rdma", address), "enable": enable, "name": name});
    json!([
        {
            "addr": nvmet_addr("rdma", "192.0.2.1"),
            "ana_groups": [
                {"ana": {"state": "optimized"}, "grpid": 1},
                {"ana": {"state": "non-optimized"}, "grpid": 2},
            ],
            "param": {"inline_data_size": "16384", "max_queue_size": "-1", "pi_enable": "0"},
            "portid": 7,
            "referrals": [referral("192.0.2.9", 1, "other"), referral("192.0.2.10", 0, "off")],
            "subsystems": ["nqn.2024-01.com.example:disks"],
        },
        {
            "addr": nvmet_addr("tcp", "192.0.2.2"), "ana_groups": [], "param": {}, "portid": 8,
            "referrals": [], "subsystems": [],
        },
    ])
}

fn nvmet_namespaces() -> Value {
    json!([
        {
            "ana": {"grpid": "2"}, "ana_grpid": 2, "enable": 1, "nsid": 1,
            "device": {
                "nguid": "5b722b05-e9b6-542d-ba80-62010b57775d",
                "path": "/dev/nullb0",
                "uuid": "26ffc8ce-73b4-321d-9685-7d7a9872c460",
            },
            "resv": {"enable": "0"},
        },
        {
            "ana": {"grpid": "1"}, "ana_grpid": 1, "enable": 1, "nsid": 2,
            "device": {
                "nguid": "00000000-0000-0000-0000-000000000000",
                "path": "/srv/disk.img",
                "uuid": "26ffc8ce-73b4-321d-9685-7d7a9872c461",
            },
            "resv": {"enable": "1"},
        },
        {"enable": 0, "nsid": 3, "device": {"path": "/dev/off"}},
        {"enable": 1, "nsid": 50000, "device": {"path": "/dev/far"}},
    ])
}

fn saved_by_nvmetcli() -> Value {
    let passthru = |enable: u8| {
        json!([{
            "admin_timeout": 0, "clear_ids": 0, "device": {"path": "/dev/nvme0"},
            "enable": enable, "io_timeout": 0,
        }])
    };
    json!({
        "hosts": [
            {"nqn": "nqn.2024-01.com.example:one", "dhchap_key": KEY},
            {"nqn": "nqn.2024-01.com.example:two"},
            {
                "nqn": "nqn.2024-01.com.example:three",
                "dhchap": {
                    "ctrl_key": "", "dhgroup": "null", "hash": "hmac(sha256)",
                    "key": KEY,
                },
            },
        ],
        "ports": nvmet_ports(),
        "subsystems": [
            {
                "allowed_hosts": ["nqn.2024-01.com.example:one", "nqn.2024-01.com.example:two"],
                "attr": {
                    "allow_any_host": "0", "cntlid_max": "100", "cntlid_min": "1",
                    "firmware": "6.12.0", "ieee_oui": "0x000000", "model": "Linux",
                    "pi_enable": "0", "qid_max": "4", "serial": "3d83c78b76623f1d",
                    "version": "1.3",
                },
                "namespaces": nvmet_namespaces(),
                "nqn": "nqn.2024-01.com.example:disks",
                "passthru": passthru(0),
            },
            {
                "allowed_hosts": [], "attr": {"allow_any_host": "1", "qid_max": "128"},
                "namespaces": [], "nqn": "nqn.2024-01.com.example:open", "passthru": passthru(1),
            },
        ],
    })
}

#[test]
fn what_nvmetcli_saved_becomes_a_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let saved = written(&folder, "saved.json", &saved_by_nvmetcli().to_string());
    let (code, text, notes) = say(&["import", "nvmet"], &saved);
    assert_eq!(code, Some(PARTIAL), "{notes}");
    let config = parse(&text);
    assert_eq!(config.target.in_capsule_data_bytes, 16384);
    let [listener] = &config.listeners[..] else {
        panic!("{text}")
    };
    assert_eq!(listener.trid().to_string(), "192.0.2.1:4420");
    assert_eq!(listener.port_id, 7);
    let mut states = AnaStates::all(AnaState::OPTIMIZED);
    states.set(2, AnaState::NON_OPTIMIZED);
    assert_eq!(listener.ana, states);
    let referrals = config.referrals.iter();
    let referrals: Vec<_> = referrals.map(|one| one.address.to_string()).collect();
    assert_eq!(referrals, ["192.0.2.9:4420"]);
    let disks = &config.subsystems[0];
    assert_eq!(
        (disks.serial.as_str(), disks.model.as_str()),
        ("3d83c78b76623f1d", "Linux")
    );
    assert_eq!(disks.controller_ids, 1..=100);
    assert_eq!(disks.allowed_hosts.hosts.len(), 2);
    assert!(!disks.allow_any_host);
    let [first, second] = &disks.namespaces[..] else {
        panic!("{text}")
    };
    assert_eq!(first.backing, Backing::Disk("/dev/nullb0".into()));
    assert_eq!(first.ana_group, 2);
    assert_eq!(first.known_nguid().unwrap()[..2], [0x5b, 0x72]);
    assert_eq!(
        first.uuid.unwrap().to_string(),
        "26ffc8ce-73b4-321d-9685-7d7a9872c460"
    );
    assert_eq!((second.nguid, first.block_size.is_some()), (None, false));
    assert!(second.block_size.is_some(), "{text}");
    assert!(config.subsystems[1].allow_any_host);
    for part in [
        "host nqn.2024-01.com.example:one: its keys are in this text",
        "host nqn.2024-01.com.example:three: its keys are in this text",
        "port 7, referral off is left out: it is not enabled",
        "port 8 is left out: its transport is \"tcp\"",
        "disks: qid_max",
        "open: it passes /dev/nvme0 through",
        "namespace 2 of nqn.2024-01.com.example:disks, resv: enable",
        "namespace 3 of nqn.2024-01.com.example:disks is left out: it is not enabled",
        "namespace 50000 of nqn.2024-01.com.example:disks is left out",
        "namespace 2 of nqn.2024-01.com.example:disks: block_size is 4096",
        "warning: the result is partial",
    ] {
        assert!(notes.contains(part), "{part:?} in\n{notes}");
    }
    assert!(!notes.contains("AAEC"), "{notes}");
    let [(host, keys)] = &disks.authentication.hosts[..] else {
        panic!("{text}")
    };
    assert_eq!(host.raw(), "nqn.2024-01.com.example:one");
    let KeySource::Inline(key) = &keys.host else {
        panic!("{text}")
    };
    assert_eq!((key.secret(), &keys.controller), (KEY, &None));
    assert!(notes.contains("open: it has no model: hosts see \"Cairn\" instead of \"Linux\""));
    assert_eq!(notes.lines().count(), 12, "{notes}");
    let lists = config.subsystems.iter().map(|one| one.listeners.as_ref());
    let lists: Vec<_> = lists.map(|own| own.map(Vec::len)).collect();
    assert_eq!(lists, [None, Some(0)]);
}

#[test]
fn a_list_beside_any_host_is_imported() {
    let folder = tempfile::tempdir().unwrap();
    let mut saved = saved_by_nvmetcli();
    saved["subsystems"][0]["attr"]["allow_any_host"] = json!("1");
    let saved = written(&folder, "saved.json", &saved.to_string());
    let (code, text, notes) = say(&["import", "nvmet"], &saved);
    assert_eq!(code, Some(PARTIAL), "{notes}");
    let disks = &parse(&text).subsystems[0];
    assert!(disks.allow_any_host, "{text}");
    assert_eq!(disks.allowed_hosts.hosts.len(), 2);
}

#[test]
fn what_is_exported_is_imported_again() {
    let folder = tempfile::tempdir().unwrap();
    let saved = written(&folder, "saved.json", &saved_by_nvmetcli().to_string());
    let (_, first, _) = say(&["import", "nvmet"], &saved);
    let file = written(&folder, "target.toml", &first);
    let (code, exported, notes) = say(&["export", "nvmet"], &file);
    assert_eq!((code, notes.as_str()), (Some(0), ""));
    let again = written(&folder, "again.json", &exported);
    let (code, second, _) = say(&["import", "nvmet"], &again);
    assert_eq!(code, Some(0));
    let (first, mut second) = (parse(&first), parse(&second));
    assert_eq!(second.subsystems[1].serial, first.subsystems[1].serial);
    second.subsystems[1]
        .model
        .clone_from(&first.subsystems[1].model);
    assert_eq!(first, second);

    let more = "[[listener]]\naddress = \"192.0.2.1\"\ndscp = 24\n\n[[subsystem]]\n\
                nqn = \"nqn.2024-01.com.example:m\"\nallow_any_host = true\n\
                allowed_hosts = [\"nqn.2024-01.com.example:g\"]\n\n\
                [[subsystem.namespace]]\nnsid = 1\nexport = \"mem:1MiB\"\n\n\
                [[subsystem.namespace]]\nnsid = 2\nexport = \"/dev/x\"\n\n\
                [[subsystem.namespace]]\nnsid = 8193\nexport = \"/dev/y\"\n\n\
                [[subsystem]]\nnqn = \"nqn.2024-01.com.example:k\"\n\
                allowed_hosts = [\"nqn.2024-01.com.example:h\", \"nqn.2024-01.com.example:i\"]\n\
                dhchap_key = \"/etc/others.key\"\n\n\
                [[subsystem.host]]\nnqn = \"nqn.2024-01.com.example:h\"\ndhchap_key = \"/etc/h.key\"\n";
    let file = written(&folder, "more.toml", more);
    let (code, exported, notes) = say(&["export", "nvmet"], &file);
    assert_eq!(code, Some(1), "{notes}");
    let exported: Value = serde_json::from_str(&exported).unwrap();
    let namespaces = exported["subsystems"][0]["namespaces"].as_array().unwrap();
    assert_eq!(namespaces.len(), 1);
    assert_eq!(exported["subsystems"][0]["allowed_hosts"], json!([]));
    assert_eq!(exported["subsystems"][0]["attr"]["allow_any_host"], "1");
    assert_eq!(exported["hosts"].as_array().unwrap().len(), 2);
    for part in [
        "subsystem nqn.2024-01.com.example:m: its list of hosts (allowed_hosts) is left out",
        "tos",
        "namespace 1",
        "namespace 2 of nqn.2024-01.com.example:m: its uuid",
        "namespace 8193 of nqn.2024-01.com.example:m is left out: nvmetcli",
        "subsystem nqn.2024-01.com.example:k: the keys of its hosts are left out",
        "subsystem nqn.2024-01.com.example:k: the keys of host nqn.2024-01.com.example:h are left out",
    ] {
        assert!(notes.contains(part), "{part:?} in\n{notes}");
    }
}

const SPDK_NQN: &str = "nqn.2016-06.io.spdk:cnode1";

fn saved_by_spdk() -> Value {
    let listener = json!({
        "trtype": "RDMA", "adrfam": "IPv4", "traddr": "192.0.2.1", "trsvcid": "4420",
    });
    let nqn = SPDK_NQN;
    let request = |method: &str, params: Value| json!({"method": method, "params": params});
    let add = |bdev: &str, nsid: u32| {
        let namespace = json!({
            "nsid": nsid, "bdev_name": bdev, "nguid": "0".repeat(32),
            "no_auto_visible": nsid == 3,
        });
        request(
            "nvmf_subsystem_add_ns",
            json!({"nqn": nqn, "namespace": namespace}),
        )
    };
    json!({"subsystems": [
        {"subsystem": "sock", "config": [request("sock_set_default_impl", json!({"impl_name": "posix"}))]},
        {"subsystem": "iobuf", "config": null},
        {"subsystem": "bdev", "config": [
            request("bdev_set_options", json!({"bdev_io_pool_size": 4096})),
            [
                request("bdev_malloc_create", json!({
                    "name": "Malloc0", "num_blocks": 2048, "block_size": 4096, "md_size": 0,
                    "uuid": "26ffc8ce-73b4-321d-9685-7d7a9872c460",
                })),
                request("bdev_aio_create", json!({
                    "name": "aio0", "filename": "/dev/sdx", "block_size": 512, "readonly": true,
                })),
            ],
            request("bdev_nvme_attach_controller", json!({"name": "Nvme0"})),
            request("bdev_wait_for_examine", json!(null)),
        ]},
        {"subsystem": "keyring", "config": [
            request("keyring_file_add_key", json!({"name": "key0", "path": "/etc/spdk/key0"})),
            request("keyring_file_add_key", json!({"name": "key1", "path": "/etc/spdk/key1"})),
        ]},
        {"subsystem": "nvmf", "config": [
            request("nvmf_create_transport", json!({
                "trtype": "RDMA", "max_queue_depth": 256, "io_unit_size": 8192,
            })),
            request("nvmf_create_transport", json!({"trtype": "TCP"})),
            request("nvmf_create_subsystem", json!({
                "nqn": nqn, "allow_any_host": false, "serial_number": "SPDK1",
                "model_number": "SPDK bdev Controller", "min_cntlid": 1, "max_cntlid": 65519,
            })),
            request("nvmf_subsystem_add_host", json!({
                "nqn": nqn, "host": "nqn.2016-06.io.spdk:host1",
                "dhchap_key": "key0", "dhchap_ctrlr_key": "key1",
            })),
            request("nvmf_subsystem_add_host", json!({
                "nqn": nqn, "host": "nqn.2016-06.io.spdk:host2", "dhchap_key": "lost",
            })),
            add("Malloc0", 1),
            add("aio0", 3),
            add("Nvme0n1", 4),
            request("nvmf_ns_add_host", json!({
                "nqn": nqn, "nsid": 3, "host": "nqn.2016-06.io.spdk:host1",
            })),
            request("nvmf_subsystem_add_listener", json!({"nqn": nqn, "listen_address": listener})),
            request("nvmf_subsystem_listener_set_ana_state", json!({
                "nqn": nqn, "listen_address": listener, "ana_state": "non_optimized", "anagrpid": 3,
            })),
            request("nvmf_discovery_add_referral", json!({"address": listener})),
        ]},
    ]})
}

#[test]
fn what_spdk_saved_becomes_a_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let saved = written(&folder, "spdk.json", &saved_by_spdk().to_string());
    let (code, text, notes) = say(&["import", "spdk"], &saved);
    assert_eq!(code, Some(1), "{notes}");
    let config = parse(&text);
    assert_eq!(config.listeners[0].ana.get(3), AnaState::NON_OPTIMIZED);
    assert_eq!(config.referrals.len(), 1);
    let subsystem = &config.subsystems[0];
    assert_eq!(
        (subsystem.nqn.raw(), subsystem.serial.as_str()),
        (SPDK_NQN, "SPDK1")
    );
    let [memory, disk] = &subsystem.namespaces[..] else {
        panic!("{text}")
    };
    assert_eq!(memory.backing, Backing::Memory { bytes: 8 << 20 });
    assert_eq!(memory.name.as_deref(), Some("Malloc0"));
    assert_eq!((disk.nsid, disk.read_only, disk.nguid), (3, true, None));
    assert_eq!(memory.hosts, Access::AnyHost);
    let list = disk.hosts.list().unwrap();
    let host = "nqn.2016-06.io.spdk:host1".parse().unwrap();
    assert!(list.hosts.iter().eq([&host]) && list.groups.is_empty());
    for part in [
        "bdev_set_options has no counterpart",
        "bdev_nvme_attach_controller has no counterpart",
        "namespace 4 of nqn.2016-06.io.spdk:cnode1 (Nvme0n1) is left out",
        "nvmf_create_transport of TCP has no counterpart",
        "nvmf_create_transport: max_queue_depth 256 is not carried over: [target] has queue_depth",
        "host nqn.2016-06.io.spdk:host2 is left out of nqn.2016-06.io.spdk:cnode1",
    ] {
        assert!(notes.contains(part), "{part:?} in\n{notes}");
    }
    let keys: Vec<_> = config.keys.iter().map(|key| key.name.as_str()).collect();
    assert_eq!(keys, ["key0", "key1"]);
    assert!(
        text.contains("dhchap_key = \"key:key0\"\ndhchap_ctrl_key = \"key:key1\""),
        "{text}"
    );
    assert_eq!(notes.lines().count(), 7, "{notes}");
    assert!(notes.starts_with("note: namespace 4 of"), "{notes}");
    let hosts = &subsystem.allowed_hosts.hosts;
    assert!(hosts.iter().eq([&host]), "{text}");
}

pub(crate) const FOR_SPDK: &str = "[[listener]]\naddress = \"192.0.2.1\"\n\n[[listener.ana_group]]\nid = 3\n\
    state = \"non-optimized\"\n\n[[listener]]\naddress = \"192.0.2.2\"\nport = 4421\n\n\
    [[referral]]\naddress = \"192.0.2.9\"\n\n[[key]]\nname = \"one\"\npath = \"/etc/one.key\"\n\n\
    [[subsystem]]\nnqn = \"nqn.2024-01.com.example:a\"\nserial = \"S1\"\nmodel = \"M1\"\n\
    controller_ids = \"1-100\"\n\
    allowed_hosts = [\"nqn.2024-01.com.example:h\", \"nqn.2024-01.com.example:i\"]\n\n\
    [[subsystem.host]]\nnqn = \"nqn.2024-01.com.example:h\"\ndhchap_key = \"key:one\"\n\n\
    [[subsystem.namespace]]\nnsid = 1\nname = \"Malloc7\"\nexport = \"mem:1MiB\"\nblock_size = 4096\n\
    uuid = \"26ffc8ce-73b4-321d-9685-7d7a9872c460\"\nlimits = { iops = 2000, read = \"3MiB\" }\n\n\
    [[subsystem.namespace]]\nnsid = 2\nname = \"aio\"\nexport = \"/srv/disk.img\"\nblock_size = 512\n\
    uuid = \"26ffc8ce-73b4-321d-9685-7d7a9872c461\"\nread_only = true\nana_group = 3\n\
    nguid = \"5b722b05e9b6542dba8062010b57775d\"\nhosts = [\"nqn.2024-01.com.example:h\"]\n\n\
    [[subsystem]]\nnqn = \"nqn.2024-01.com.example:b\"\nserial = \"S2\"\nallow_any_host = true\n\n\
    [[subsystem.namespace]]\nnsid = 5\nname = \"null\"\nexport = \"null:8MiB\"\nblock_size = 512\n\n\
    [[subsystem.namespace]]\nnsid = 6\nname = \"image\"\nexport = \"rbd:pool/image\"\nread_only = true\n\
    uuid = \"26ffc8ce-73b4-321d-9685-7d7a9872c462\"\nhosts = []\n\
    ceph = { conf = \"/etc/ceph/b.conf\", id = \"b\", keyring = \"/etc/ceph/b.keyring\", options = { rbd_readahead_max_bytes = \"0\" } }\n\n\
    [[subsystem.namespace]]\nnsid = 7\nname = \"other\"\nexport = \"rbd:pool/other\"\n\
    uuid = \"26ffc8ce-73b4-321d-9685-7d7a9872c463\"\nceph = { id = \"c\" }\n";

#[test]
fn what_is_exported_for_spdk_is_imported_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = written(&folder, "target.toml", FOR_SPDK);
    let (code, exported, notes) = say(&["export", "spdk"], &file);
    assert_eq!((code, notes.as_str()), (Some(0), ""));
    let saved = written(&folder, "spdk.json", &exported);
    let (code, text, notes) = say(&["import", "spdk"], &saved);
    assert_eq!((code, notes.as_str()), (Some(0), ""), "{text}");
    assert_eq!(parse(&text), parse(FOR_SPDK), "{text}");
    let again = written(&folder, "again.toml", &text);
    assert_eq!(
        say(&["export", "spdk"], &again),
        (Some(0), exported, String::new())
    );
}

#[test]
fn images_of_spdk_keep_their_users() {
    let folder = tempfile::tempdir().unwrap();
    let mut saved = saved_by_spdk();
    let request = |method: &str, params: Value| json!({"method": method, "params": params});
    let image = |name: &str, more: Value| {
        let mut params =
            json!({"name": name, "pool_name": "p", "rbd_name": name, "block_size": 512});
        let all = params.as_object_mut().unwrap();
        all.extend(more.as_object().unwrap().clone());
        request("bdev_rbd_create", params)
    };
    let add = |bdev: &str| {
        let namespace = json!({"nqn": SPDK_NQN, "namespace": {"bdev_name": bdev}});
        request("nvmf_subsystem_add_ns", namespace)
    };
    let cluster = json!({"name": "c", "user_id": "u", "key_file": "/k", "config_param": {"mon_host": "192.0.2.7"}});
    let bdevs = saved["subsystems"][2]["config"].as_array_mut().unwrap();
    bdevs.extend([
        request("bdev_rbd_register_cluster", cluster),
        image("one", json!({"cluster_name": "c"})),
        image(
            "two",
            json!({"user_id": "v", "config": {"mon_host": "192.0.2.8"}, "namespace_name": "n"}),
        ),
    ]);
    let last = saved["subsystems"]
        .as_array_mut()
        .unwrap()
        .last_mut()
        .unwrap();
    last["config"]
        .as_array_mut()
        .unwrap()
        .extend([add("one"), add("two")]);
    let saved = written(&folder, "spdk.json", &saved.to_string());
    let (code, text, notes) = say(&["import", "spdk"], &saved);
    assert_eq!(code, Some(1), "{notes}");
    assert!(
        !notes.contains("rbd") && !notes.contains("cluster"),
        "{notes}"
    );
    let config = parse(&text);
    let subsystem = config
        .subsystems
        .iter()
        .find(|one| one.nqn.raw() == SPDK_NQN);
    let images = subsystem.unwrap().namespaces.iter();
    let images: Vec<_> = images
        .filter_map(|one| match &one.backing {
            Backing::Rbd(image) => Some(image),
            _ => None,
        })
        .collect();
    let [one, two] = images[..] else {
        panic!("{text}")
    };
    assert_eq!(
        (one.user.as_deref(), one.keyring.as_deref()),
        (Some("u"), Some(Path::new("/k")))
    );
    let mon_host = |at: &str| [("mon_host".to_owned(), at.to_owned())];
    assert_eq!(one.options, mon_host("192.0.2.7"));
    assert_eq!(
        (two.user.as_deref(), two.namespace.as_deref()),
        (Some("v"), Some("n"))
    );
    assert_eq!(two.options, mon_host("192.0.2.8"));
}

#[test]
fn what_spdk_does_not_have_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let toml = "[marking]\nrules = [\"tclass=104,dst_ip=192.0.2.0/24\"]\n\n\
        [[listener]]\naddress = \"192.0.2.1\"\ndscp = 24\nport_id = 7\nana = \"persistent-loss\"\n\n\
        [[host_group]]\nname = \"g\"\nhosts = [\"nqn.2024-01.com.example:h\"]\n\n\
        [[subsystem]]\nnqn = \"nqn.2024-01.com.example:a\"\nallowed_hosts = [\"@g\"]\n\
        dhchap_key = \"/etc/others.key\"\nlimits = { iops = 5 }\n\n\
        [[subsystem.namespace]]\nnsid = 1\nexport = \"/srv/disk.img\"\nshared = true\n\
        limits = { iops = 1500 }\n\n\
        [[subsystem.namespace]]\nnsid = 2\nexport = \"/dev/ng0n1\"\n\n\
        [[subsystem.namespace]]\nnsid = 3\nexport = \"mem:1MiB\"\nread_only = true\n\n\
        [[subsystem.namespace]]\nnsid = 4\nexport = \"rbd:pool/image@snap\"\n\n\
        [[subsystem.namespace]]\nnsid = 5\nexport = \"dir:/srv/disks\"\n\n\
        [[subsystem]]\nnqn = \"nqn.2024-01.com.example:b\"\nallow_any_host = true\n\
        dhchap_key = \"credential:b\"\n";
    let file = written(&folder, "target.toml", toml);
    let (code, exported, notes) = say(&["export", "spdk"], &file);
    assert_eq!(code, Some(1), "{notes}");
    for part in [
        "[marking]: rules has no counterpart",
        "192.0.2.1:4420: tos (dscp) has no counterpart",
        "192.0.2.1:4420: port_id",
        "persistent-loss",
        "[[host_group]]",
        "subsystem nqn.2024-01.com.example:a, limits: iops has no counterpart",
        "namespace 1 of nqn.2024-01.com.example:a: shared",
        "namespace 1 of nqn.2024-01.com.example:a: its limits are rounded up",
        "namespace 1 of nqn.2024-01.com.example:a: its block_size",
        "namespace 1 of nqn.2024-01.com.example:a: its uuid",
        "namespace 2 of nqn.2024-01.com.example:a is left out: SPDK takes an NVMe drive",
        "namespace 3 of nqn.2024-01.com.example:a is left out: SPDK would let hosts write",
        "namespace 4 of nqn.2024-01.com.example:a is left out: SPDK has no namespaces of pools",
        "namespace 5 of nqn.2024-01.com.example:a is left out: only Cairn exports the files of a directory",
        "subsystem nqn.2024-01.com.example:b: the keys of its hosts are left out",
    ] {
        assert!(notes.contains(part), "{part:?} in\n{notes}");
    }
    assert_eq!(notes.lines().count(), 16, "{notes}");
    let exported: Value = serde_json::from_str(&exported).unwrap();
    let of = |part: usize, method: &str| {
        let requests = exported["subsystems"][part]["config"].as_array().unwrap();
        let all = requests
            .iter()
            .filter(|request| request["method"] == method);
        all.map(|request| request["params"].clone())
            .collect::<Vec<_>>()
    };
    let keys = of(0, "keyring_file_add_key");
    assert_eq!(keys, [json!({"name": "key0", "path": "/etc/others.key"})]);
    let host = json!({
        "nqn": "nqn.2024-01.com.example:a", "host": "nqn.2024-01.com.example:h", "dhchap_key": "key0",
    });
    assert_eq!(of(2, "nvmf_subsystem_add_host"), [host]);
    let disk =
        json!({"name": "Aio0", "filename": "/srv/disk.img", "block_size": 512, "readonly": false});
    assert_eq!(of(1, "bdev_aio_create"), [disk]);
    assert_eq!(of(1, "bdev_set_qos_limit")[0]["rw_ios_per_sec"], 1500);
}

#[test]
fn what_is_no_saved_configuration_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, text) in [
        ("nvmet", "{}"),
        ("nvmet", "[1"),
        ("spdk", "[]"),
        ("spdk", "{\"subsystems\": 3}"),
        (
            "nvmet",
            "{\"ports\": [{}], \"subsystems\": [{}, {\"nqn\": \"nqn.x\"}]}",
        ),
    ] {
        let file = written(&folder, "wrong.json", text);
        let (code, _, error) = say(&["import", kind], &file);
        assert_eq!(code, Some(1), "{text}");
        assert!(error.contains("error: "), "{text}: {error}");
    }
    for (kind, saved, part) in [
        (
            "spdk",
            saved_by_nvmetcli(),
            "nvmet's: cairn-target import nvmet FILE",
        ),
        (
            "nvmet",
            saved_by_spdk(),
            "SPDK's: cairn-target import spdk FILE",
        ),
    ] {
        let file = written(&folder, "other.json", &saved.to_string());
        let (code, _, error) = say(&["import", kind], &file);
        assert_eq!(code, Some(1), "{error}");
        assert!(error.contains(part), "{error}");
    }
    let (code, _, error) = say(&["import", "nvmet"], Path::new("/no/such/file"));
    assert_eq!(code, Some(1));
    assert!(error.contains("/no/such/file"), "{error}");
}
