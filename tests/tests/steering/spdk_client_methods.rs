use std::fs::File;
use std::path::Path;

use serde_json::{Value, json};

use crate::spdk::{HOST, NEW, includes};
use crate::spdk_client::{RpcPy, client, key_file};
use crate::target::{NQN, Steered};

fn disk_file(folder: &Path, name: &str) -> String {
    let path = folder.join(name);
    File::create(&path).unwrap().set_len(8 << 20).unwrap();
    path.display().to_string()
}

#[test]
#[ignore = "SPDK's own client: `cargo xtask test --all` runs it"]
fn spdks_own_rpc_py_calls_every_method() {
    let Some(client) = client() else {
        return;
    };
    let target = Steered::start();
    let mut rpc = RpcPy::start(&client, &target);
    of_the_process(&mut rpc);
    of_disks(&mut rpc, target.folder.path());
    of_subsystems(&mut rpc, &target);
    of_namespaces(&mut rpc);
    of_hosts(&mut rpc, target.folder.path());
    of_connections(&mut rpc, &target);
    of_disks_that_hosts_see(&mut rpc);
    let all = rpc.done("rpc_get_methods");
    let names = all
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap());
    let missing: Vec<&str> = names
        .filter(|name| !name.starts_with("cairn_") && !rpc.called.contains(*name))
        .collect();
    assert!(missing.is_empty(), "not called: {missing:?}");
}

fn of_the_process(rpc: &mut RpcPy) {
    let version = json!({"fields": {"suffix": " (Cairn)"}});
    let reactor = json!({"reactors": [{"lw_threads": [{"name": "reactor_0"}]}]});
    rpc.steps(&[
        ("spdk_get_version", version),
        ("framework_start_init", Value::Null),
        ("framework_wait_init", Value::Null),
        (
            "framework_get_subsystems",
            json!([{"subsystem": "keyring"}, {"subsystem": "bdev"}, {"subsystem": "nvmf"}]),
        ),
        ("framework_get_config keyring", json!([])),
        ("framework_get_reactors", reactor),
        ("framework_set_scheduler static", Value::Null),
        ("framework_get_scheduler", json!({"scheduler_name": "static"})),
        ("framework_get_pci_devices", json!([])),
        ("log_set_level WARNING", Value::Null),
        ("log_get_level", json!("WARNING")),
        ("nvmf_set_max_subsystems -x 64", Value::Null),
        (
            "nvmf_set_config -m 0x1 --discovery-filters match_any --dhchap-digests sha256,sha384 \
             --dhchap-dhgroups null,ffdhe2048",
            Value::Null,
        ),
        ("nvmf_set_crdt -t1 1", json!(true)),
        (
            "nvmf_create_transport -t RDMA -q 128 -m 16 -c 8192 -i 131072 -a 32 -d 4096 -s 4096 -l 100 \
             -x 1 --iobuf-small-cache-size 32 --iobuf-large-cache-size 8 --acceptor-poll-rate 10000 \
             --ack-timeout 10 --data-wr-pool-size 100 --kas 100 --min-kato 1000",
            Value::Null,
        ),
        ("nvmf_get_transports", json!([{"trtype": "RDMA"}])),
        ("nvmf_get_transports --trtype RDMA", json!([{"trtype": "RDMA"}])),
    ]);
    for (line, wanted) in [
        ("accel_set_options --task-count 64", Value::Null),
        ("bdev_examine -b Malloc0", Value::Null),
        ("bdev_iscsi_set_options -t 1", Value::Null),
        ("bdev_nvme_set_hotplug --no-hotplug", Value::Null),
        ("bdev_nvme_set_options --timeout-us 1", Value::Null),
        ("bdev_raid_set_options -w 64", Value::Null),
        ("bdev_set_options -p 64", Value::Null),
        ("bdev_wait_for_examine", Value::Null),
        ("iobuf_set_options --small-pool-count 64", Value::Null),
        ("keyring_linux_set_options", Value::Null),
        ("sock_impl_set_options -i posix -r 4096", Value::Null),
        ("sock_set_default_impl -i posix", Value::Null),
    ] {
        let found = rpc.done(line);
        assert!(found == wanted || found == true, "{line}: {found}");
    }
}

fn of_disks(rpc: &mut RpcPy, folder: &Path) {
    let uuid = "11111111-2222-4333-8444-555555555555";
    let (aio, uring) = (disk_file(folder, "aio.img"), disk_file(folder, "uring.img"));
    let create = |line: String, name: &str| (line, json!(name));
    for (line, name) in [
        create(
            format!("bdev_malloc_create -b Malloc0 -u {uuid} -p 4096 -o 8 4 512"),
            "Malloc0",
        ),
        create("bdev_malloc_create 1 4096".into(), "Malloc1"),
        create("bdev_null_create -p 4096 Null0 8 512".into(), "Null0"),
        create(format!("bdev_aio_create {aio} Aio0 512"), "Aio0"),
        create(
            format!(
                "bdev_uring_create {uring} Uring0 4096 -u 41111111-2222-4333-8444-555555555555"
            ),
            "Uring0",
        ),
    ] {
        assert_eq!(rpc.done(&line), name, "{line}");
    }
    let malloc = json!([{"name": "Malloc0", "uuid": uuid, "num_blocks": 8192, "block_size": 512,
        "product_name": "Malloc disk", "claimed": false}]);
    let all = ["Aio0", "Malloc0", "Malloc1", "Null0", "Uring0"].map(|name| json!({"name": name}));
    let found = rpc.done("bdev_get_bdevs");
    let named = found.as_array().unwrap();
    assert_eq!(named.len(), all.len() + 1, "{found:#}");
    for wanted in all {
        assert!(named.iter().any(|bdev| includes(bdev, &wanted)), "{wanted}");
    }
    rpc.steps(&[
        ("bdev_get_bdevs -b Malloc0 -t 100", malloc.clone()),
        (&format!("bdev_get_bdevs -b {uuid}"), malloc),
        ("bdev_null_resize Null0 16", json!(true)),
        ("bdev_get_bdevs -b Null0", json!([{"num_blocks": 32768}])),
        (
            "bdev_set_qos_limit Malloc0 --rw-ios-per-sec 2000 --rw-mbytes-per-sec 10 \
             --r-mbytes-per-sec 5 --w-mbytes-per-sec 6",
            Value::Null,
        ),
        (
            "bdev_get_bdevs -b Malloc0",
            json!([{"assigned_rate_limits": {"rw_ios_per_sec": 2000, "rw_mbytes_per_sec": 10,
                "r_mbytes_per_sec": 5, "w_mbytes_per_sec": 6}}]),
        ),
        (
            "notify_get_types",
            json!(["bdev_register", "bdev_unregister", "bdev_resize"]),
        ),
        (
            "notify_get_notifications -i 3 -n 2",
            json!([{"id": 3, "type": "bdev_register", "ctx": "Null0"},
                {"id": 4, "type": "bdev_register", "ctx": "Aio0"}]),
        ),
        (
            "notify_get_notifications -i 6",
            json!([{"id": 6, "type": "bdev_resize", "ctx": "Null0"}]),
        ),
    ]);
}

fn of_subsystems(rpc: &mut RpcPy, target: &Steered) {
    let (second, third) = ("4421", "4422");
    let at = |port: &str| format!("-t rdma -f ipv4 -a {} -s {port}", target.address);
    let address = |port: &str| json!({"trtype": "RDMA", "adrfam": "IPv4", "traddr": target.address, "trsvcid": port});
    let create = format!(
        "nvmf_create_subsystem {NEW} -s SPDK1 -d MODEL1 -a -m 32 -r -i 1 -I 100 --dmrsl 100 --wzsl 100 \
         --admin-label label"
    );
    rpc.steps(&[
        (&create, Value::Null),
        (
            &format!("nvmf_get_subsystems {NEW}"),
            json!([{"nqn": NEW, "subtype": "NVMe", "serial_number": "SPDK1", "model_number": "MODEL1",
                "allow_any_host": true, "min_cntlid": 1, "max_cntlid": 100, "listen_addresses": []}]),
        ),
        (
            &format!("nvmf_subsystem_add_listener {NEW} {} -n optimized", at(second)),
            Value::Null,
        ),
        (
            &format!("nvmf_subsystem_add_listener {NEW} {}", at(third)),
            Value::Null,
        ),
        (
            &format!("nvmf_subsystem_listener_set_ana_state {NEW} -n inaccessible {}", at(third)),
            Value::Null,
        ),
        (
            &format!("nvmf_subsystem_listener_set_ana_state {NEW} -n non_optimized -g 2 {}", at(second)),
            Value::Null,
        ),
    ]);
    let shown = rpc.done(&format!("nvmf_subsystem_get_listeners {NEW}"));
    let state =
        |listener: usize, group: usize| &shown[listener]["ana_states"][group - 1]["ana_state"];
    assert_eq!(shown[0]["address"], address(second), "{shown:#}");
    assert_eq!(
        (state(0, 1), state(0, 2)),
        (&json!("optimized"), &json!("non_optimized"))
    );
    assert_eq!(
        (state(1, 1), state(1, 2)),
        (&json!("inaccessible"), &json!("inaccessible"))
    );
    rpc.steps(&[
        (
            &format!("nvmf_subsystem_remove_listener {NEW} {}", at(third)),
            Value::Null,
        ),
        (
            &format!("nvmf_subsystem_get_listeners {NEW}"),
            json!([{"address": address(second)}]),
        ),
        (
            &format!("nvmf_discovery_add_referral {} -n discovery", at(second)),
            Value::Null,
        ),
        (
            "nvmf_discovery_get_referrals",
            json!([{"address": address(second), "secure_channel": false}]),
        ),
        (
            &format!("nvmf_discovery_remove_referral {}", at(second)),
            Value::Null,
        ),
        ("nvmf_discovery_get_referrals", json!([])),
    ]);
}

fn of_namespaces(rpc: &mut RpcPy) {
    let uuid = "51111111-2222-4333-8444-555555555555";
    let nguid = "00112233445566778899aabbccddeeff";
    for line in [
        format!("nvmf_subsystem_add_ns {NEW} Malloc0 -n 3 -u {uuid} -g {nguid} -a 2"),
        format!("nvmf_subsystem_add_ns {NEW} Null0 -i"),
        format!("nvmf_subsystem_add_ns {NEW} Aio0"),
        format!("nvmf_subsystem_add_ns {NEW} Uring0"),
        format!("nvmf_ns_add_host {NEW} 1 {HOST}"),
    ] {
        rpc.done(&line);
    }
    let again = rpc.refused(&format!("nvmf_subsystem_add_ns {NQN} Malloc0"));
    assert_eq!(again["code"], -32602);
    let shown = rpc.done(&format!("nvmf_get_subsystems {NEW}"));
    let namespaces = shown[0]["namespaces"].as_array().unwrap();
    assert_eq!(namespaces.len(), 4, "{shown:#}");
    let find = |nsid: u32| {
        let mut all = namespaces.iter();
        all.find(|one| one["nsid"] == nsid).unwrap()
    };
    let malloc =
        json!({"bdev_name": "Malloc0", "uuid": uuid, "nguid": nguid.to_uppercase(), "anagrpid": 2});
    assert!(includes(find(3), &malloc), "{shown:#}");
    let hidden = json!({"bdev_name": "Null0", "no_auto_visible": true, "hosts": [HOST]});
    assert!(includes(find(1), &hidden), "{shown:#}");
    rpc.done(&format!("nvmf_ns_remove_host {NEW} 1 {HOST}"));
    let shown = rpc.done(&format!("nvmf_get_subsystems {NEW}"));
    assert!(!shown.to_string().contains(HOST), "{shown:#}");
}

fn of_hosts(rpc: &mut RpcPy, folder: &Path) {
    for name in ["one", "two"] {
        let key = key_file(folder, name);
        rpc.done(&format!("keyring_file_add_key {name} {key}"));
    }
    let with_keys = json!([{"nqn": HOST, "dhchap_key": "two", "dhchap_ctrlr_key": "one"}]);
    let other = format!("{HOST}b");
    rpc.steps(&[
        (
            &format!("nvmf_subsystem_add_host {NEW} {HOST} --dhchap-key one"),
            Value::Null,
        ),
        (
            &format!(
                "nvmf_subsystem_set_keys {NEW} {HOST} --dhchap-key two --dhchap-ctrlr-key one"
            ),
            Value::Null,
        ),
        (
            &format!("nvmf_subsystem_allow_any_host {NEW} --no-allow-any-host"),
            Value::Null,
        ),
        (
            &format!("nvmf_get_subsystems {NEW}"),
            json!([{"allow_any_host": false, "hosts": with_keys}]),
        ),
        ("keyring_file_remove_key two", Value::Null),
        (
            "keyring_get_keys",
            json!([{"name": "one", "removed": false}, {"name": "two", "removed": true}]),
        ),
        (
            &format!("nvmf_subsystem_add_host {NEW} {other}"),
            Value::Null,
        ),
        (
            &format!("nvmf_subsystem_remove_host {NEW} {HOST} -T 1000"),
            Value::Null,
        ),
        (
            &format!("nvmf_get_subsystems {NEW}"),
            json!([{"hosts": [{"nqn": other}]}]),
        ),
        (
            &format!("nvmf_subsystem_allow_any_host {NEW} --allow-any-host"),
            Value::Null,
        ),
        (
            &format!("nvmf_get_subsystems {NEW}"),
            json!([{"allow_any_host": true}]),
        ),
    ]);
}

fn of_connections(rpc: &mut RpcPy, target: &Steered) {
    let host = target.connect("watched");
    let hostnqn = target.options("watched").hostnqn.raw().to_owned();
    let controllers = rpc.done(&format!("nvmf_subsystem_get_controllers {NQN}"));
    assert!(
        includes(&controllers, &json!([{"cntlid": 1, "hostnqn": hostnqn}])),
        "{controllers:#}"
    );
    let qpairs = rpc.done(&format!("nvmf_subsystem_get_qpairs {NQN}"));
    assert!(
        includes(&qpairs[0], &json!({"qid": 0, "hostnqn": hostnqn})),
        "{qpairs:#}"
    );
    let groups = json!({"poll_groups": [{"name": "reactor_0", "current_admin_qpairs": 1}]});
    rpc.steps(&[
        ("nvmf_get_stats", groups),
        (
            "bdev_get_iostat --names Malloc0,Null0 --reset-mode none",
            json!({"tick_rate": 1_000_000_000, "bdevs": [{"name": "Malloc0", "num_read_ops": 0},
                {"name": "Null0"}]}),
        ),
    ]);
    drop(host);
}

fn of_disks_that_hosts_see(rpc: &mut RpcPy) {
    rpc.steps(&[
        ("bdev_aio_rescan Aio0", json!(true)),
        ("bdev_uring_rescan Uring0", json!(true)),
        (&format!("nvmf_subsystem_remove_ns {NEW} 3"), Value::Null),
        ("bdev_get_bdevs -b Malloc0", json!([{"claimed": false}])),
        ("bdev_malloc_delete Malloc0", Value::Null),
        ("bdev_null_delete Null0", Value::Null),
        ("bdev_aio_delete Aio0", Value::Null),
        ("bdev_uring_delete Uring0", Value::Null),
        (
            &format!("nvmf_get_subsystems {NEW}"),
            json!([{"nqn": NEW, "namespaces": []}]),
        ),
        (&format!("nvmf_delete_subsystem {NEW}"), Value::Null),
    ]);
    let left = rpc.done("nvmf_get_subsystems");
    assert_eq!(left.as_array().unwrap().len(), 2, "{left:#}");
}
