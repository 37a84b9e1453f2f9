//! Invalid values and access restrictions in other targets' configurations.

use serde_json::{Value, json};

use crate::convert::{parse, say, written};

const NQN: &str = "nqn.2016-06.io.spdk:cnode1";
const HOST: &str = "nqn.2016-06.io.spdk:host1";

fn request(method: &str, params: &Value) -> Value {
    json!({"method": method, "params": params})
}

fn spdk(more: &[Value]) -> Value {
    let listener = json!({
        "trtype": "RDMA", "adrfam": "IPv4", "traddr": "192.0.2.1", "trsvcid": "4420",
    });
    let mut requests = vec![
        request(
            "bdev_malloc_create",
            &json!({"name": "M", "num_blocks": 2048, "block_size": 512}),
        ),
        request(
            "nvmf_create_subsystem",
            &json!({"nqn": NQN, "allow_any_host": false, "model_number": "M"}),
        ),
        request(
            "nvmf_subsystem_add_listener",
            &json!({"nqn": NQN, "listen_address": listener}),
        ),
    ];
    requests.extend_from_slice(more);
    json!({"subsystems": [{"subsystem": "nvmf", "config": requests}]})
}

fn import(kind: &str, saved: &Value) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = written(&folder, "saved.json", &saved.to_string());
    say(&["import", kind], &file)
}

fn settings(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.collect()
}

fn text(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

#[test]
fn a_number_is_read_however_it_is_written() {
    let disk = text(r#"{"name": "D", "num_blocks": 4.096e3, "block_size": 512.0}"#);
    let limit = text(r#"{"name": "D", "rw_ios_per_sec": 2.0e4}"#);
    let namespace = json!({"nqn": NQN, "namespace": {"bdev_name": "D"}});
    let saved = spdk(&[
        request("bdev_null_create", &disk),
        request("bdev_set_qos_limit", &limit),
        request("nvmf_subsystem_add_ns", &namespace),
    ]);
    let (code, text, notes) = import("spdk", &saved);
    assert_eq!((code, notes.as_str()), (Some(0), ""));
    let config = parse(&text);
    let namespace = &config.subsystems[0].namespaces[0];
    assert_eq!(namespace.limits.iops, Some(20000));
    assert!(text.contains("null:2097152"), "{text}");
}

#[test]
fn a_value_that_cannot_be_read_is_named_and_its_object_left_out() {
    for (method, params, named) in [
        (
            "bdev_null_create",
            json!({"name": "D", "num_blocks": "4k", "block_size": 512}),
            "num_blocks is not a number: \"4k\"",
        ),
        (
            "bdev_null_create",
            json!({"name": "D", "num_blocks": 1.5, "block_size": 512}),
            "num_blocks is not a number: 1.5",
        ),
        (
            "bdev_aio_create",
            json!({"name": "D", "filename": "/d", "readonly": "yes"}),
            "readonly is not a number: \"yes\"",
        ),
        (
            "bdev_set_qos_limit",
            json!({"name": "M", "rw_ios_per_sec": "two"}),
            "rw_ios_per_sec is not a number: \"two\"",
        ),
        (
            "nvmf_subsystem_add_ns",
            json!({"nqn": NQN, "namespace": {"bdev_name": "M", "nsid": "two"}}),
            "nsid is not a number",
        ),
        (
            "nvmf_subsystem_add_ns",
            json!({"nqn": NQN, "namespace": {"bdev_name": "M", "no_auto_visible": "two"}}),
            "no_auto_visible is not a number",
        ),
        (
            "nvmf_subsystem_add_host",
            json!({"nqn": NQN, "host": HOST, "dhchap_key": {"name": "k"}}),
            "dhchap_key is not text",
        ),
        (
            "nvmf_create_subsystem",
            json!({"nqn": "nqn.x:y", "allow_any_host": "two"}),
            "allow_any_host is not a number",
        ),
        (
            "nvmf_ns_add_host",
            json!({"nqn": NQN, "nsid": "4k", "host": HOST}),
            "nsid is not a number",
        ),
    ] {
        let (_, text, notes) = import("spdk", &spdk(&[request(method, &params)]));
        assert!(notes.contains(named), "{params}: {notes}");
        assert!(notes.contains("is left out"), "{params}: {notes}");
        let config = parse(&text);
        assert_eq!(config.subsystems.len(), 1, "{text}");
        assert!(config.subsystems[0].namespaces.is_empty(), "{text}");
        assert!(
            config.subsystems[0].allowed_hosts.hosts.is_empty(),
            "{text}"
        );
    }
}

#[test]
fn a_host_whose_key_is_unknown_is_left_out() {
    for keys in [
        json!({"dhchap_key": "lost"}),
        json!({"dhchap_ctrlr_key": "lost"}),
        json!({"psk": "lost"}),
    ] {
        let mut params = json!({"nqn": NQN, "host": HOST});
        params
            .as_object_mut()
            .unwrap()
            .extend(keys.as_object().unwrap().clone());
        let (code, text, notes) = import(
            "spdk",
            &spdk(&[request("nvmf_subsystem_add_host", &params)]),
        );
        assert_eq!(code, Some(1), "{notes}");
        assert!(
            notes.contains(&format!("host {HOST} is left out")),
            "{notes}"
        );
        assert!(!settings(&text).contains(HOST), "{text}");
    }
}

#[test]
fn settings_that_restrict_the_target_are_carried_over_or_refused() {
    let set = |params: Value| import("spdk", &spdk(&[request("nvmf_set_config", &params)]));
    let (code, text, notes) = set(json!({
        "discovery_filter": "match_any", "dup_host_policy": "allow",
        "admin_cmd_passthru": {"identify_ctrlr": false},
        "dhchap_digests": ["sha512"], "dhchap_dhgroups": ["ffdhe2048", "ffdhe8192"],
    }));
    assert_eq!((code, notes.as_str()), (Some(0), ""), "{text}");
    let policy = &parse(&text).subsystems[0].authentication.policy;
    assert_eq!(policy.hashes, ["sha512"]);
    assert_eq!(policy.groups, ["ffdhe8192", "ffdhe2048"]);
    for params in [
        json!({"discovery_filter": "transport"}),
        json!({"dup_host_policy": "restrict_per_listener"}),
        json!({"dhchap_digests": ["md5"]}),
    ] {
        let (code, _, notes) = set(params.clone());
        assert_eq!(code, Some(1), "{params}: {notes}");
    }
}

#[test]
fn listeners_of_discovery_are_listeners_of_the_target() {
    let listener = json!({
        "trtype": "RDMA", "adrfam": "IPv4", "traddr": "192.0.2.1", "trsvcid": "8009",
    });
    let discovery =
        json!({"nqn": "nqn.2014-08.org.nvmexpress.discovery", "listen_address": listener});
    let (code, text, notes) = import(
        "spdk",
        &spdk(&[request("nvmf_subsystem_add_listener", &discovery)]),
    );
    assert_eq!((code, notes.as_str()), (Some(0), ""));
    let config = parse(&text);
    assert_eq!(config.listeners.len(), 2);
    assert_eq!(config.listeners_of(&config.subsystems[0]).count(), 1);
}

fn nvmet(namespace: &Value, attr: &Value, host: &Value) -> Value {
    let addr = json!({
        "adrfam": "ipv4", "traddr": "192.0.2.1", "treq": "not specified", "trsvcid": "4420",
        "trtype": "rdma",
    });
    json!({
        "hosts": [host],
        "ports": [{"addr": addr, "portid": 1, "subsystems": [NQN]}],
        "subsystems": [{
            "nqn": NQN, "attr": attr, "allowed_hosts": [HOST], "namespaces": [namespace],
        }],
    })
}

#[test]
fn values_of_nvmet_that_cannot_be_read_are_named() {
    let good = json!({"nsid": 1, "enable": 1, "device": {"path": "/dev/sdx"}});
    let attr = json!({"allow_any_host": "0"});
    let host = json!({"nqn": HOST});
    let with = |key: &str, value: Value| {
        let mut namespace = good.clone();
        namespace[key] = value;
        nvmet(&namespace, &attr, &host)
    };
    for (saved, named) in [
        (
            with("enable", json!("two")),
            "enable is not a number: \"two\"",
        ),
        (
            with("ana_grpid", json!("4k")),
            "ana_grpid is not a number: \"4k\"",
        ),
        (with("nsid", json!("4k")), "nsid is not a number: \"4k\""),
        (
            with("device", json!({"path": ["/dev/sdx"]})),
            "path is not text",
        ),
        (
            nvmet(&good, &json!({"allow_any_host": "two"}), &host),
            "allow_any_host is not a number",
        ),
        (
            nvmet(&good, &json!({"cntlid_min": "two"}), &host),
            "cntlid_min is not a number",
        ),
    ] {
        let (_, text, notes) = import("nvmet", &saved);
        assert!(notes.contains(named), "{notes}");
        assert!(!settings(&text).contains("/dev/sdx"), "{text}");
    }
    let keyed = json!({"nqn": HOST, "dhchap_key": ["DHHC-1:00:c2VjcmV0:"]});
    let (code, text, notes) = import("nvmet", &nvmet(&good, &attr, &keyed));
    assert_eq!(code, Some(1));
    assert!(
        notes.contains("dhchap_key is not text") && !notes.contains("c2V"),
        "{notes}"
    );
    assert!(!settings(&text).contains(HOST), "{text}");
}

#[test]
fn a_host_of_nvmet_whose_key_is_lost_is_no_success() {
    let good = json!({"nsid": 1, "enable": 1, "device": {"path": "/dev/sdx"}});
    let attr = json!({"allow_any_host": "0"});
    for (host, is_omitted) in [
        (json!({"nqn": HOST, "dhchap_key": "DHHC-1:00:AAAA:"}), true),
        (json!({"nqn": HOST, "dhchap_key": "secret"}), true),
        (
            json!({"nqn": HOST, "dhchap": {"key": "DHHC-1:00:AAAA:"}}),
            true,
        ),
        (
            json!({"nqn": HOST, "dhchap_ctrl_key": "DHHC-1:00:AAAA:"}),
            true,
        ),
        (
            json!({"nqn": HOST, "auth": {"first": ["DHHC-1:00:AAAA:"]}}),
            false,
        ),
        (json!({"nqn": HOST, "secret": "AAAA"}), false),
    ] {
        let (code, text, notes) = import("nvmet", &nvmet(&good, &attr, &host));
        assert_eq!(code, Some(1), "{host}: {notes}");
        assert!(notes.contains(HOST) && !notes.contains("AAAA"), "{notes}");
        assert_eq!(
            !settings(&text).contains(HOST),
            is_omitted,
            "{host}: {text}"
        );
        assert!(!text.contains("AAAA"), "{text}");
    }
}

#[test]
fn defaults_of_spdk_have_no_notes() {
    let usual = json!({
        "trtype": "RDMA", "max_queue_depth": 128, "max_io_qpairs_per_ctrlr": 127,
        "in_capsule_data_size": 4096, "max_io_size": 131072, "io_unit_size": 8192,
        "max_aq_depth": 128, "num_shared_buffers": 4095, "buf_cache_size": 4294967295_u32,
        "no_srq": false, "acceptor_backlog": 100,
    });
    let mut other = usual.clone();
    other["io_unit_size"] = json!(16384);
    other["num_cqe"] = json!(1);
    other["in_capsule_data_size"] = json!(8192);
    for (params, named) in [(usual, &[][..]), (other, &["io_unit_size", "num_cqe"])] {
        let max = json!({"max_subsystems": 1024});
        let saved = spdk(&[
            request("nvmf_set_max_subsystems", &max),
            request("sock_set_default_impl", &json!({"impl_name": "posix"})),
            request("nvmf_create_transport", &params),
        ]);
        let (code, text, notes) = import("spdk", &saved);
        assert_eq!(
            (code, notes.lines().count()),
            (Some(0), named.len()),
            "{notes}"
        );
        let is_usual = params["in_capsule_data_size"] == 4096;
        assert_eq!(text.contains("in_capsule_data"), !is_usual, "{text}");
        assert!(named.iter().all(|key| notes.contains(key)), "{notes}");
    }
}

#[test]
fn listeners_of_tcp_alone_are_said_to_be_none() {
    let addr = json!({"trtype": "tcp", "traddr": "192.0.2.1", "trsvcid": "4420"});
    let mut of_nvmet = nvmet(&json!({}), &json!({}), &json!({}));
    of_nvmet["ports"][0]["addr"] = addr;
    let mut of_spdk = spdk(&[]);
    of_spdk["subsystems"][0]["config"][2]["params"]["listen_address"]["trtype"] = json!("TCP");
    for (kind, saved) in [("nvmet", of_nvmet), ("spdk", of_spdk)] {
        let (code, _, notes) = import(kind, &saved);
        assert_eq!(code, Some(1), "{notes}");
        assert!(
            notes.contains("no listener is left, because none is RDMA"),
            "{notes}"
        );
    }
}

#[test]
fn a_file_below_dev_is_a_file() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = folder.path().join("image");
    std::fs::write(&file, [0; 4096]).unwrap();
    for path in [file.to_str().unwrap(), "/dev/shm/not-on-this-machine"] {
        let namespace = json!({"nsid": 1, "enable": 1, "device": {"path": path}});
        let saved = nvmet(
            &namespace,
            &json!({"allow_any_host": "1"}),
            &json!({"nqn": HOST}),
        );
        let (code, text, notes) = import("nvmet", &saved);
        assert_eq!(code, Some(0), "{notes}");
        assert!(text.contains("block_size = 4096"), "{text}");
    }
    let toml = format!(
        "[[listener]]\naddress = \"192.0.2.1\"\n[[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
         [[subsystem.namespace]]\nnsid = 1\nexport = {file:?}\n\
         [[subsystem.namespace]]\nnsid = 2\nexport = \"/dev/null\"\n"
    );
    let config = written(&folder, "target.toml", &toml);
    let (code, exported, notes) = say(&["export", "spdk"], &config);
    assert_eq!(code, Some(0), "{notes}");
    let exported: Value = serde_json::from_str(&exported).unwrap();
    let disks = exported["subsystems"][1]["config"].as_array().unwrap();
    assert_eq!(disks[0]["params"]["block_size"], 512);
    assert!(
        disks[1]["params"]["block_size"].is_null(),
        "a device has its own: {disks:?}"
    );
}

#[test]
fn a_limit_of_namespaces_other_than_the_default_is_named() {
    let of = |number: u64| {
        let saved = json!({"subsystems": [{"subsystem": "nvmf", "config": [request(
            "nvmf_create_subsystem",
            &json!({"nqn": NQN, "allow_any_host": true, "model_number": "M",
                    "max_namespaces": number}),
        )]}]});
        import("spdk", &saved).2
    };
    for usual in [0, 32, 10240] {
        assert!(!of(usual).contains("max_namespaces"), "{usual}");
    }
    assert!(of(8).contains("max_namespaces"), "{}", of(8));
}
