use cairn_initiator::Host;
use serde_json::{Value, json};

use crate::target::{NQN, Steered};

pub(crate) fn includes(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, value)| found.get(key).is_some_and(|found| includes(found, value))),
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len()
                && found
                    .iter()
                    .zip(wanted)
                    .all(|(found, wanted)| includes(found, wanted))
        }
        _ => found == wanted,
    }
}

pub(crate) const NEW: &str = "nqn.2016-06.io.spdk:cnode1";
pub(crate) const HOST: &str = "nqn.2016-06.io.spdk:host1";

fn listener(target: &Steered) -> Value {
    json!({"trtype": "RDMA", "adrfam": "IPv4", "traddr": target.address, "trsvcid": "4420"})
}

fn malloc() -> Value {
    json!({"num_blocks": 2048, "block_size": 512, "name": "Malloc0"})
}

#[test]
fn recorded_exchanges_have_their_answers() {
    let mut target = Steered::start();
    build(&target);
    let again = json!({"nqn": NQN, "namespace": {"bdev_name": "Malloc0"}});
    assert_eq!(target.refused("nvmf_subsystem_add_ns", again), -32602);
    target.crash();
    views_show_it(&target);
    any_host_keeps_the_list(&target);
    mistakes_have_their_codes(&target);
    for (method, params) in [
        ("nvmf_subsystem_remove_ns", json!({"nqn": NEW, "nsid": 7})),
        ("bdev_malloc_delete", json!({"name": "Malloc0"})),
        ("nvmf_delete_subsystem", json!({"nqn": NEW})),
    ] {
        assert_eq!(target.done(method, params), true, "{method}");
    }
    let left = target.done("nvmf_get_subsystems", json!({}));
    assert_eq!(left.as_array().unwrap().len(), 2);
    assert_eq!(left[1]["nqn"], NQN);
}

#[test]
fn a_namespace_is_visible_to_chosen_hosts() {
    let mut target = Steered::start();
    let mut hosts = ["one", "two"].map(|name| target.connect(name));
    let nqn_of = |name: &str| target.options(name).hostnqn.raw().to_owned();
    let change = |method: &str, nsid: u32, name: &str| {
        let params = json!({"nqn": NQN, "nsid": nsid, "host": nqn_of(name)});
        target.call(method, params)
    };
    target.done("bdev_malloc_create", malloc());
    let hidden = json!({"bdev_name": "Malloc0", "nsid": 2, "no_auto_visible": true});
    let add = json!({"nqn": NQN, "namespace": hidden});
    assert_eq!(target.done("nvmf_subsystem_add_ns", add), 2);
    let seen = |hosts: &mut [Host; 2]| hosts.each_mut().map(|host| host.active_namespaces());
    let assert_seen = |hosts: &mut [Host; 2], expected: [&[u32]; 2]| {
        assert_eq!(seen(hosts).map(Result::unwrap), expected);
    };
    assert_seen(&mut hosts, [&[1], &[1]]);
    for (method, name, expected) in [
        ("nvmf_ns_add_host", "two", [&[1][..], &[1, 2]]),
        ("nvmf_ns_add_host", "two", [&[1], &[1, 2]]),
        ("nvmf_ns_add_host", "one", [&[1, 2], &[1, 2]]),
        ("nvmf_ns_remove_host", "two", [&[1, 2], &[1]]),
        ("nvmf_ns_remove_host", "two", [&[1, 2], &[1]]),
    ] {
        assert_eq!(change(method, 2, name).unwrap(), true);
        assert_seen(&mut hosts, expected);
    }
    for (nsid, code) in [(1, -1), (3, -32602)] {
        for method in ["nvmf_ns_add_host", "nvmf_ns_remove_host"] {
            let params = json!({"nqn": NQN, "nsid": nsid, "host": HOST});
            assert_eq!(target.refused(method, params), code, "{method} {nsid}");
        }
    }
    let shown = target.done("nvmf_get_subsystems", json!({"nqn": NQN}));
    let wanted = json!({"nsid": 2, "no_auto_visible": true, "hosts": [nqn_of("one")]});
    assert!(includes(&shown[0]["namespaces"][1], &wanted), "{shown:#}");
    drop(hosts);
    target.crash();
    let mut hosts = ["one", "two"].map(|name| target.connect(name));
    assert_seen(&mut hosts, [&[1, 2], &[1]]);
}

fn build(target: &Steered) {
    for (method, params, result) in [
        (
            "nvmf_create_transport",
            json!({"trtype": "RDMA", "io_unit_size": 8192}),
            json!(true),
        ),
        ("bdev_malloc_create", malloc(), json!("Malloc0")),
        (
            "bdev_malloc_create",
            json!({"num_blocks": 8, "block_size": 4096}),
            json!("Malloc1"),
        ),
        (
            "bdev_null_create",
            json!({"name": "Null0", "num_blocks": 64, "block_size": 512}),
            json!("Null0"),
        ),
        (
            "nvmf_create_subsystem",
            json!({"nqn": NEW, "serial_number": "SPDK1", "min_cntlid": 1, "max_cntlid": 65519}),
            json!(true),
        ),
        (
            "nvmf_subsystem_add_ns",
            json!({"nqn": NEW, "namespace": {"bdev_name": "Malloc0"}}),
            json!(1),
        ),
        (
            "nvmf_subsystem_add_ns",
            json!({"nqn": NEW, "namespace": {"bdev_name": "Null0", "nsid": 7}}),
            json!(7),
        ),
        (
            "nvmf_subsystem_add_listener",
            json!({"nqn": NEW, "listen_address": listener(target)}),
            json!(true),
        ),
        (
            "nvmf_subsystem_add_host",
            json!({"nqn": NEW, "host": HOST}),
            json!(true),
        ),
        (
            "nvmf_subsystem_allow_any_host",
            json!({"nqn": NEW, "allow_any_host": false}),
            json!(true),
        ),
    ] {
        assert_eq!(
            target.done(method, params.clone()),
            result,
            "{method} {params}"
        );
    }
}

fn views_show_it(target: &Steered) {
    let at = listener(target);
    let subsystems = target.done("nvmf_get_subsystems", json!({}));
    let wanted = json!({
        "nqn": NEW,
        "subtype": "NVMe",
        "listen_addresses": [at],
        "allow_any_host": false,
        "hosts": [{"nqn": HOST}],
        "serial_number": "SPDK1",
        "namespaces": [{"nsid": 1, "bdev_name": "Malloc0"}, {"nsid": 7, "bdev_name": "Null0"}],
    });
    assert!(includes(&subsystems[2], &wanted), "{subsystems:#}");
    assert_eq!(subsystems[0]["subtype"], "Discovery");
    let bdevs = target.done("bdev_get_bdevs", json!({"name": "Malloc0"}));
    let bdev = json!([{"name": "Malloc0", "block_size": 512, "num_blocks": 2048, "claimed": true}]);
    assert!(includes(&bdevs, &bdev), "{bdevs:#}");
    let listeners = target.done("nvmf_subsystem_get_listeners", json!({"nqn": NEW}));
    assert!(
        includes(&listeners, &json!([{"address": at}])),
        "{listeners:#}"
    );
}

fn any_host_keeps_the_list(target: &Steered) {
    let guest = "nqn.2016-06.io.spdk:guest";
    let shown = |any: bool, hosts: &[&str]| {
        let shown = target.done("nvmf_get_subsystems", json!({"nqn": NEW}));
        assert_eq!(shown[0]["allow_any_host"], any);
        let hosts: Vec<Value> = hosts.iter().map(|nqn| json!({"nqn": nqn})).collect();
        assert_eq!(shown[0]["hosts"], json!(hosts));
        let saved = target.done("framework_get_config", json!({"name": "nvmf"}));
        let saved = saved.as_array().unwrap().iter();
        let of_new = saved.filter(|request| request["params"]["nqn"] == NEW);
        let methods: Vec<Value> = of_new.map(|request| request["method"].clone()).collect();
        let adds = methods
            .iter()
            .filter(|method| **method == "nvmf_subsystem_add_host");
        assert_eq!(adds.count(), hosts.len());
    };
    let any = |allow: bool| {
        let params = json!({"nqn": NEW, "allow_any_host": allow});
        assert_eq!(target.done("nvmf_subsystem_allow_any_host", params), true);
    };
    any(true);
    shown(true, &[HOST]);
    let params = json!({"nqn": NEW, "host": guest});
    assert_eq!(target.done("nvmf_subsystem_add_host", params.clone()), true);
    shown(true, &[guest, HOST]);
    any(false);
    shown(false, &[guest, HOST]);
    any(true);
    assert_eq!(
        target.done("nvmf_subsystem_remove_host", params.clone()),
        true
    );
    assert_eq!(target.refused("nvmf_subsystem_remove_host", params), -32602);
    any(false);
    shown(false, &[HOST]);
}

fn mistakes_have_their_codes(target: &Steered) {
    for (method, params, code) in [
        ("bdev_malloc_create", malloc(), -17),
        (
            "bdev_malloc_create",
            json!({"num_blocks": 1, "block_size": 100}),
            -22,
        ),
        ("bdev_malloc_create", json!({"block_size": 512}), -32602),
        ("bdev_get_bdevs", json!({"name": "none"}), -19),
        (
            "bdev_set_qos_limit",
            json!({"rw_ios_per_sec": 1000}),
            -32603,
        ),
        ("bdev_set_qos_limit", json!({"name": "none"}), -19),
        ("bdev_set_qos_limit", json!({"name": "Malloc0"}), -22),
        (
            "bdev_set_qos_limit",
            json!({"name": "Malloc0", "r_mbytes_per_sec": -1}),
            -32603,
        ),
        ("bdev_malloc_delete", json!({"name": "none"}), -19),
        (
            "bdev_aio_create",
            json!({"name": "a", "filename": "/no/such/file"}),
            -2,
        ),
        ("nvmf_create_transport", json!({"trtype": "TCP"}), -32602),
        ("nvmf_create_subsystem", json!({"nqn": NEW}), -32603),
        (
            "nvmf_delete_subsystem",
            json!({"nqn": "nqn.2016-06.io.spdk:none"}),
            -32602,
        ),
        (
            "nvmf_get_subsystems",
            json!({"nqn": "nqn.2016-06.io.spdk:none"}),
            -32602,
        ),
        (
            "nvmf_subsystem_add_ns",
            json!({"nqn": NEW, "namespace": {"bdev_name": "none"}}),
            -32602,
        ),
        (
            "nvmf_subsystem_remove_ns",
            json!({"nqn": NEW, "nsid": 9}),
            -32602,
        ),
        ("bdev_lvol_create", json!({}), -32601),
    ] {
        assert_eq!(
            target.refused(method, params.clone()),
            code,
            "{method} {params}"
        );
    }
}

#[test]
fn requests_of_the_command_line_are_carried_out() {
    let target = Steered::start();
    let disk = target.folder.path().join("one.img");
    std::fs::write(&disk, [0; 65536]).unwrap();
    let listen =
        json!({"trtype": "rdma", "traddr": target.address, "adrfam": "ipv4", "trsvcid": "4421"});
    let exchanges = [
        (
            "nvmf_create_transport",
            json!({"no_srq": false, "c2h_success": true, "trtype": "RDMA", "zcopy": false,
                "dif_insert_or_strip": false, "no_wr_batching": false, "disable_mappable_bar0": false,
                "disable_adaptive_irq": false, "disable_shadow_doorbells": false,
                "disable_command_passthru": false}),
        ),
        (
            "bdev_aio_create",
            json!({"filename": disk, "name": "Aio0", "block_size": 512, "readonly": false,
                "fallocate": false, "nowait": false}),
        ),
        (
            "bdev_malloc_create",
            json!({"num_blocks": 2048, "block_size": 512, "name": "M0", "md_interleave": false,
                "dif_is_head_of_md": false}),
        ),
        (
            "bdev_null_create",
            json!({"num_blocks": 2048, "block_size": 512, "name": "N0", "dif_is_head_of_md": false}),
        ),
        (
            "nvmf_create_subsystem",
            json!({"nqn": NEW, "serial_number": "S1", "allow_any_host": false, "ana_reporting": false,
                "max_namespaces": 32, "passthrough": false, "enable_nssr": false}),
        ),
        (
            "nvmf_subsystem_add_ns",
            json!({"nqn": NEW, "namespace": {"bdev_name": "Aio0", "no_auto_visible": false}}),
        ),
        ("nvmf_subsystem_add_host", json!({"nqn": NEW, "host": HOST})),
        (
            "nvmf_subsystem_add_listener",
            json!({"nqn": NEW, "secure_channel": false, "listen_address": listen}),
        ),
        (
            "nvmf_discovery_add_referral",
            json!({"secure_channel": false, "address": listen}),
        ),
    ];
    for (method, params) in exchanges {
        target.done(method, params);
    }
    for (method, params) in [
        (
            "bdev_aio_create",
            json!({"filename": disk, "name": "Aio1", "block_size": 512, "fallocate": true}),
        ),
        (
            "nvmf_subsystem_add_listener",
            json!({"nqn": NEW, "secure_channel": true, "listen_address": listen}),
        ),
    ] {
        assert_eq!(target.refused(method, params), -32602, "{method}");
    }
    let shown = target.done("nvmf_get_subsystems", json!({"nqn": NEW}));
    let wanted =
        json!({"nqn": NEW, "hosts": [{"nqn": HOST}], "namespaces": [{"bdev_name": "Aio0"}]});
    assert!(includes(&shown[0], &wanted), "{shown:#}");
}
