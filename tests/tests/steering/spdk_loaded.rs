use serde_json::{Value, json};

use crate::target::{NQN, Steered};

const NEW: &str = "nqn.2016-06.io.spdk:cnode1";
const HOST: &str = "nqn.2016-06.io.spdk:host1";

fn request(method: &str, params: &Value) -> Value {
    json!({"method": method, "params": params})
}

fn bdevs(file: &str) -> Vec<Value> {
    vec![
        request(
            "bdev_set_options",
            &json!({"bdev_io_pool_size": 65535, "bdev_io_cache_size": 256,
                "bdev_auto_examine": true, "iobuf_small_cache_size": 128,
                "iobuf_large_cache_size": 16}),
        ),
        request(
            "bdev_raid_set_options",
            &json!({"process_window_size_kb": 1024}),
        ),
        request("bdev_iscsi_set_options", &json!({"timeout_sec": 30})),
        request(
            "bdev_nvme_set_options",
            &json!({"action_on_timeout": "none"}),
        ),
        request(
            "bdev_nvme_set_hotplug",
            &json!({"period_us": 100_000, "enable": false}),
        ),
        request(
            "bdev_malloc_create",
            &json!({"name": "Malloc0", "num_blocks": 2048, "block_size": 512,
                "physical_block_size": 512, "uuid": "26ffc8ce-73b4-321d-9685-7d7a9872c460",
                "optimal_io_boundary": 0, "md_size": 0, "dif_type": 0,
                "dif_is_head_of_md": false, "dif_pi_format": 0, "numa_id": -1}),
        ),
        request(
            "bdev_null_create",
            &json!({"name": "Null0", "num_blocks": 2048, "block_size": 512,
                "physical_block_size": 512, "md_size": 0, "dif_type": 0,
                "dif_is_head_of_md": false, "dif_pi_format": 0,
                "uuid": "b6a1ee10-6ab9-4c30-bb1d-2c8ab2a2f9e4", "preferred_write_granularity": 1,
                "preferred_write_alignment": 1, "optimal_write_size": 1,
                "preferred_unmap_granularity": 1, "preferred_unmap_alignment": 1}),
        ),
        request(
            "bdev_aio_create",
            &json!({"name": "Aio0", "block_size": 512, "filename": file, "readonly": false,
                "fallocate": false, "uuid": "5b12a3a5-5c55-4e19-9b7b-5d1d0f2f5b5d",
                "nowait": true}),
        ),
        request("bdev_wait_for_examine", &json!({})),
    ]
}

fn nvmf(listener: &Value) -> Vec<Value> {
    let add = |bdev: &str, nsid: u32, uuid: &str| {
        let namespace = json!({"nsid": nsid, "bdev_name": bdev,
            "nguid": uuid.replace('-', "").to_uppercase(), "uuid": uuid, "anagrpid": nsid,
            "no_auto_visible": false});
        request(
            "nvmf_subsystem_add_ns",
            &json!({"nqn": NEW, "namespace": namespace}),
        )
    };
    vec![
        request(
            "nvmf_set_config",
            &json!({"discovery_filter": "match_any", "admin_cmd_passthru": {
                "identify_ctrlr": false, "get_log_page": false}, "dhchap_digests": ["sha256"],
                "dhchap_dhgroups": ["null"], "dup_host_policy": "allow"}),
        ),
        request("nvmf_set_max_subsystems", &json!({"max_subsystems": 1024})),
        request(
            "nvmf_set_crdt",
            &json!({"crdt1": 0, "crdt2": 0, "crdt3": 0}),
        ),
        request(
            "nvmf_create_transport",
            &json!({"trtype": "RDMA", "max_queue_depth": 128, "max_io_qpairs_per_ctrlr": 127,
                "in_capsule_data_size": 4096, "max_io_size": 131_072, "max_aq_depth": 128,
                "max_srq_depth": 4096, "no_srq": false, "kas": 100, "min_kato": 10000}),
        ),
        request(
            "nvmf_create_subsystem",
            &json!({"nqn": NEW, "allow_any_host": false, "serial_number": "SPDK1",
                "model_number": "SPDK bdev Controller", "max_namespaces": 32, "min_cntlid": 1,
                "max_cntlid": 65519, "ana_reporting": true, "dmrsl": 0, "wzsl": 0,
                "passthrough": false, "enable_nssr": false, "admin_label": "shelf 3"}),
        ),
        request(
            "nvmf_subsystem_add_host",
            &json!({"nqn": NEW, "host": HOST}),
        ),
        add("Malloc0", 1, "26ffc8ce-73b4-321d-9685-7d7a9872c460"),
        add("Null0", 2, "b6a1ee10-6ab9-4c30-bb1d-2c8ab2a2f9e4"),
        add("Aio0", 3, "5b12a3a5-5c55-4e19-9b7b-5d1d0f2f5b5d"),
        request(
            "nvmf_subsystem_add_listener",
            &json!({"nqn": NEW, "listen_address": listener, "secure_channel": false,
                "sock_impl": "posix", "numa_id": 0}),
        ),
    ]
}

fn saved_by_spdk(file: &str, listener: &Value) -> Vec<Value> {
    let mut all = vec![
        request("keyring_linux_set_options", &json!({"enable": false})),
        request(
            "iobuf_set_options",
            &json!({"small_pool_count": 8192, "large_pool_count": 1024}),
        ),
        request("sock_set_default_impl", &json!({"impl_name": "posix"})),
        request(
            "sock_impl_set_options",
            &json!({"impl_name": "posix", "recv_buf_size": 2_097_152}),
        ),
        request("accel_set_options", &json!({"small_cache_size": 128})),
    ];
    all.extend(bdevs(file));
    all.push(request(
        "framework_set_scheduler",
        &json!({"name": "static"}),
    ));
    all.extend(nvmf(listener));
    all
}

#[test]
fn what_spdks_own_target_saves_is_loaded() {
    let target = Steered::start();
    let file = target.folder.path().join("one.img");
    std::fs::write(&file, [0; 65536]).unwrap();
    let listener = json!({
        "trtype": "RDMA", "adrfam": "IPv4", "traddr": target.address, "trsvcid": "4420",
    });
    let methods = target.done("rpc_get_methods", json!({"current": true}));
    for request in saved_by_spdk(file.to_str().unwrap(), &listener) {
        let method = request["method"].as_str().unwrap();
        let is_known = methods.as_array().unwrap().contains(&request["method"]);
        assert!(is_known, "{method}");
        target.done(method, request["params"].clone());
    }
    let shown = target.done("nvmf_get_subsystems", json!({"nqn": NEW}));
    assert_eq!(shown[0]["listen_addresses"], json!([listener]));
    assert_eq!(shown[0]["hosts"], json!([{"nqn": HOST}]));
    let namespaces = shown[0]["namespaces"].as_array().unwrap();
    let of = |namespace: &Value| [&namespace["bdev_name"], &namespace["uuid"]].map(Value::clone);
    let shown: Vec<_> = namespaces.iter().map(of).collect();
    let wanted = [
        ("Malloc0", "26ffc8ce-73b4-321d-9685-7d7a9872c460"),
        ("Null0", "b6a1ee10-6ab9-4c30-bb1d-2c8ab2a2f9e4"),
        ("Aio0", "5b12a3a5-5c55-4e19-9b7b-5d1d0f2f5b5d"),
    ];
    assert_eq!(shown, wanted.map(|(name, uuid)| [json!(name), json!(uuid)]));
}

fn reason(target: &Steered, method: &str, params: Value) -> String {
    assert_eq!(target.refused(method, params.clone()), -32602, "{method}");
    target.call(method, params).unwrap_err().to_string()
}

fn with(base: &Value, name: &str, value: Value) -> Value {
    let mut all = base.clone();
    all[name] = value;
    all
}

/// Checks that the method refuses `base` with each value of `all` added, and that the error
/// contains the message of the value.
fn is_refused(target: &Steered, method: &str, base: &Value, all: &[(&str, Value, &str)]) {
    for (name, value, why) in all {
        let reason = reason(target, method, with(base, name, value.clone()));
        assert!(reason.contains(why), "{method} {name}: {reason}");
    }
}

#[test]
fn what_would_change_data_is_refused_with_its_reason() {
    let target = Steered::start();
    let sized = json!({"name": "One", "num_blocks": 64, "block_size": 512});
    let file = json!({"name": "One", "filename": "/dev/null", "block_size": 512});
    let metadata = [
        ("md_size", json!(8), "no metadata"),
        ("dif_type", json!(1), "no metadata"),
        ("dif_pi_format", json!(1), "no metadata"),
        ("dif_is_head_of_md", json!(true), "no metadata"),
        ("md_interleave", json!(true), "no metadata"),
    ];
    for (method, base) in [
        ("bdev_malloc_create", &sized),
        ("bdev_null_create", &sized),
        ("bdev_aio_create", &file),
        ("bdev_uring_create", &file),
    ] {
        is_refused(&target, method, base, &metadata);
    }
    let fallocate = ("fallocate", json!(true), "deallocated");
    is_refused(&target, "bdev_aio_create", &file, &[fallocate]);
    let passthrough = ("passthrough", json!(true), "admin commands");
    let reset = ("enable_nssr", json!(true), "reset");
    let subsystem = json!({"nqn": NEW, "serial_number": "S1"});
    let create = "nvmf_create_subsystem";
    is_refused(&target, create, &subsystem, &[passthrough, reset]);
    let psk = ("psk", json!("key0"), "TLS");
    let host = json!({"nqn": NQN, "host": HOST});
    is_refused(&target, "nvmf_subsystem_add_host", &host, &[psk]);
    let secure = ("secure_channel", json!(true), "secure channel");
    let at = json!({"trtype": "RDMA", "traddr": target.address, "trsvcid": "4420"});
    let listener = json!({"nqn": NQN, "listen_address": at});
    is_refused(&target, "nvmf_subsystem_add_listener", &listener, &[secure]);
    let on = ("enable", json!(true), "turns on");
    is_refused(&target, "bdev_nvme_set_hotplug", &json!({}), &[on]);
}

#[test]
fn a_parameter_of_a_wrong_type_is_an_error() {
    let target = Steered::start();
    let sized = json!({"name": "One", "num_blocks": 64, "block_size": 512});
    let subsystem = json!({"nqn": NEW, "serial_number": "S1"});
    for (method, base, name, value) in [
        ("nvmf_create_subsystem", &subsystem, "dmrsl", json!("many")),
        ("nvmf_create_subsystem", &subsystem, "admin_label", json!(3)),
        ("bdev_malloc_create", &sized, "numa_id", json!(true)),
        ("bdev_malloc_create", &sized, "nonsense", json!(0)),
    ] {
        let params = with(base, name, value);
        assert_eq!(target.refused(method, params), -32602, "{name}");
    }
    let disks = target.done("bdev_get_bdevs", json!({}));
    assert_eq!(disks.as_array().unwrap().len(), 1);
}

#[test]
fn namespaces_and_hosts_of_spdk_are_heeded_or_refused() {
    let target = Steered::start();
    for name in ["One", "Two"] {
        let sized = json!({"name": name, "num_blocks": 64, "block_size": 512});
        target.done("bdev_null_create", sized);
    }
    let add = |more: &Value| {
        let mut namespace = json!({"bdev_name": "One", "nsid": 5});
        for (name, value) in more.as_object().unwrap() {
            namespace[name] = value.clone();
        }
        json!({"nqn": NQN, "namespace": namespace})
    };
    for (more, why) in [
        (json!({"eui64": "0123456789ABCDEF"}), "EUI-64"),
        (json!({"ptpl_file": "/tmp/ptpl"}), "reservations"),
        (json!({"hide_metadata": 1}), "Invalid parameters"),
    ] {
        let reason = reason(&target, "nvmf_subsystem_add_ns", add(&more));
        assert!(reason.contains(why), "{reason}");
    }
    let all = json!({"eui64": "0000000000000000", "hide_metadata": false, "anagrpid": 0,
        "no_auto_visible": true});
    assert_eq!(target.done("nvmf_subsystem_add_ns", add(&all)), 5);
    let two = json!({"nqn": NQN, "namespace": {"bdev_name": "Two", "nsid": 6, "anagrpid": 9}});
    assert_eq!(target.done("nvmf_subsystem_add_ns", two), 6);
    let shown = target.done("nvmf_get_subsystems", json!({"nqn": NQN}));
    let namespaces = &shown[0]["namespaces"];
    assert_eq!(namespaces[1]["anagrpid"], 1);
    assert_eq!(namespaces[1]["no_auto_visible"], true);
    assert_eq!(namespaces[2]["anagrpid"], 9);
    target.done(
        "nvmf_subsystem_allow_any_host",
        json!({"nqn": NQN, "allow_any_host": false}),
    );
    target.done("nvmf_subsystem_add_host", json!({"nqn": NQN, "host": HOST}));
    let remove = json!({"nqn": NQN, "host": HOST, "timeout_ms": 1000});
    assert_eq!(target.done("nvmf_subsystem_remove_host", remove), true);
}
