use std::thread;
use std::time::{Duration, Instant};

use cairn_initiator::discover;
use cairn_initiator::multipath::{Multipath, MultipathOptions};
use cairn_roce::Soft;
use cairn_tests::load::Load;
use nvme_proto::wire::Nqn;
use nvme_proto::wire::log::SubsystemType;
use serde_json::{Map, Value, json};

use crate::target::{NQN, PATIENCE, Steered};

const NEW: &str = "nqn.2016-06.io.spdk:cnode1";
const HOST: &str = "nqn.2016-06.io.spdk:host1";

fn save(target: &Steered) -> Vec<Value> {
    let parts = target.done("framework_get_subsystems", json!({}));
    let parts = parts.as_array().unwrap().iter();
    let mut all = Vec::new();
    for part in parts {
        let wanted = json!({"name": part["subsystem"], "with_batches": false});
        let config = target.done("framework_get_config", wanted);
        all.extend(config.as_array().unwrap().iter().cloned());
    }
    all
}

fn load(target: &Steered, requests: &[Value]) {
    let known = target.done("rpc_get_methods", json!({"include_aliases": false}));
    let current = target.done("rpc_get_methods", json!({"current": true}));
    let has = |all: &Value, method: &Value| all.as_array().unwrap().contains(method);
    assert!(has(&known, &json!("framework_start_init")));
    assert!(!has(&current, &json!("framework_start_init")));
    for request in requests {
        assert!(has(&current, &request["method"]), "{request}");
        target.done(
            request["method"].as_str().unwrap(),
            request["params"].clone(),
        );
    }
}

fn build(target: &Steered) {
    let listener = json!({"trtype": "RDMA", "traddr": target.address, "trsvcid": "4420"});
    let malloc = json!({"name": "Malloc0", "num_blocks": 2048, "block_size": 4096});
    let null = json!({"name": "Null0", "num_blocks": 64, "block_size": 512});
    let spare = json!({"name": "Spare", "num_blocks": 64, "block_size": 512});
    let add = |bdev: &str, nsid: u32| {
        let namespace = json!({"bdev_name": bdev, "nsid": nsid, "anagrpid": nsid});
        json!({"nqn": NEW, "namespace": namespace})
    };
    let hidden = json!({"bdev_name": "Hidden", "nsid": 9, "no_auto_visible": true});
    let hidden = json!({"nqn": NEW, "namespace": hidden});
    let state = json!({
        "nqn": NEW, "listen_address": listener, "ana_state": "non_optimized", "anagrpid": 7,
    });
    let referral = json!({"trtype": "RDMA", "traddr": "192.0.2.9", "trsvcid": "4421"});
    for (method, params) in [
        ("nvmf_delete_subsystem", json!({"nqn": NQN})),
        ("bdev_malloc_create", malloc),
        ("bdev_null_create", null),
        ("bdev_null_create", spare),
        (
            "bdev_null_create",
            json!({"name": "Hidden", "num_blocks": 64, "block_size": 512}),
        ),
        (
            "nvmf_create_subsystem",
            json!({"nqn": NEW, "serial_number": "SPDK1", "min_cntlid": 1, "max_cntlid": 9}),
        ),
        ("nvmf_subsystem_add_host", json!({"nqn": NEW, "host": HOST})),
        ("nvmf_subsystem_add_ns", add("Malloc0", 1)),
        ("nvmf_subsystem_add_ns", add("Null0", 7)),
        ("nvmf_subsystem_add_ns", hidden),
        (
            "nvmf_ns_add_host",
            json!({"nqn": NEW, "nsid": 9, "host": HOST}),
        ),
        (
            "nvmf_subsystem_add_listener",
            json!({"nqn": NEW, "listen_address": listener}),
        ),
        ("nvmf_subsystem_listener_set_ana_state", state),
        ("nvmf_discovery_add_referral", json!({"address": referral})),
    ] {
        target.done(method, params);
    }
}

#[test]
fn what_one_target_saves_another_loads() {
    let saved = {
        let target = Steered::start();
        build(&target);
        save(&target)
    };
    let count = |method: &str| saved.iter().filter(|one| one["method"] == method).count();
    assert_eq!(count("bdev_null_create"), 3);
    assert_eq!(count("nvmf_ns_add_host"), 1);
    assert_eq!(count("nvmf_subsystem_listener_set_ana_state"), 1);
    let target = Steered::start();
    target.done("nvmf_delete_subsystem", json!({"nqn": NQN}));
    load(&target, &saved);
    let own = target.address.to_string();
    let mut again = save(&target);
    again.retain(|request| request["params"]["listen_address"]["traddr"] != own);
    assert_eq!(again, saved);
    let missing = json!({"name": "scheduler"});
    assert_eq!(target.refused("framework_get_config", missing), -32602);
}

#[test]
fn referrals_are_in_the_log_of_discovery() {
    let mut target = Steered::start();
    let other = json!({
        "trtype": "RDMA", "adrfam": "IPv4", "traddr": "192.0.2.9", "trsvcid": "8009",
    });
    let named = "nqn.2024-01.com.example:discovery";
    for _ in 0..2 {
        target.done("nvmf_discovery_add_referral", json!({"address": other}));
    }
    let params = json!({"address": other, "subnqn": named, "secure_channel": false});
    target.done("nvmf_discovery_add_referral", params);
    target.crash();
    let shown = target.done("nvmf_discovery_get_referrals", json!({}));
    let first = json!({"address": other, "secure_channel": false, "subnqn": ""});
    assert_eq!(shown[0], first);
    assert_eq!(shown[1]["subnqn"], named);
    assert_eq!(shown.as_array().unwrap().len(), 2);

    let log = discover(&Soft::default(), &target.options("asks")).unwrap();
    let referrals = log
        .entries
        .iter()
        .filter(|entry| SubsystemType(entry.subtype) == SubsystemType::DISCOVERY_REFERRAL);
    let text = |field: &[u8]| String::from_utf8_lossy(field).trim().to_owned();
    let referrals: Vec<_> = referrals
        .map(|entry| {
            let nqn = Nqn::decode(&entry.subnqn).unwrap();
            (text(&entry.traddr), text(&entry.trsvcid), nqn)
        })
        .collect();
    let at = |nqn: Nqn| ("192.0.2.9".to_owned(), "8009".to_owned(), nqn);
    assert_eq!(
        referrals,
        [at(Nqn::discovery()), at(Nqn::parse(named).unwrap())]
    );

    target.done("nvmf_discovery_remove_referral", json!({"address": other}));
    let again = target.refused("nvmf_discovery_remove_referral", json!({"address": other}));
    assert_eq!(again, -32603);
    let mut changed = Map::clone(other.as_object().unwrap());
    changed.remove("trsvcid");
    for (params, code) in [
        (json!({"address": changed}), -32603),
        (json!({"address": other, "secure_channel": true}), -32602),
        (json!({"address": other, "subnqn": "n".repeat(300)}), -32602),
        (json!({}), -32602),
    ] {
        let refused = target.refused("nvmf_discovery_add_referral", params.clone());
        assert_eq!(refused, code, "{params}");
    }
}

#[test]
fn disks_report_what_they_did() {
    let target = Steered::start();
    let null = json!({"name": "Null0", "num_blocks": 64, "block_size": 512});
    target.done("bdev_null_create", null);
    let paths = [target.options("worker")];
    let disk = Multipath::connect(&Soft::default(), paths, MultipathOptions::new(1)).unwrap();
    let mut load = Load::new(disk);
    load.run(200);
    drop(load.finish());
    let deadline = Instant::now() + PATIENCE;
    let all = loop {
        let all = target.done("bdev_get_iostat", json!({}));
        let again = target.done("bdev_get_iostat", json!({}));
        if all["bdevs"] == again["bdevs"] && all["bdevs"][1]["queue_depth"] == 0 {
            break all;
        }
        assert!(Instant::now() < deadline, "{all}");
    };
    assert_eq!(all["tick_rate"], 1_000_000_000);
    let ticks = |all: &Value| all["ticks"].as_u64().unwrap();
    let before = Instant::now();
    let first = ticks(&target.done("bdev_get_iostat", json!({"reset_mode": "none"})));
    thread::sleep(Duration::from_millis(50));
    let second = ticks(&target.done("bdev_get_iostat", json!({})));
    let between = second - first;
    assert!(between >= 50_000_000, "{between}");
    assert!(
        u128::from(between) <= before.elapsed().as_nanos(),
        "{between}"
    );
    let bdevs = all["bdevs"].as_array().unwrap();
    assert_eq!(bdevs.len(), 2);
    let idle = target.done(
        "bdev_get_iostat",
        json!({"names": ["Null0"], "per_channel": false}),
    );
    assert_eq!(idle["bdevs"][0]["num_read_ops"], 0);
    let number = |key: &str| bdevs[1][key].as_u64().unwrap();
    assert_eq!(bdevs[1]["name"], "mem:4194304");
    assert!(number("num_read_ops") > 0 && number("num_write_ops") > 0);
    assert_eq!(number("bytes_read"), number("num_read_ops") * 8192);
    assert_eq!(number("bytes_written"), number("num_write_ops") * 8192);
    assert!(number("read_latency_ticks") > 0 && number("write_latency_ticks") > 0);
    let none = json!({"names": ["none"]});
    assert_eq!(target.refused("bdev_get_iostat", none), -19);
    let reset = json!({"reset_mode": "all"});
    assert_eq!(target.refused("bdev_get_iostat", reset), -32602);
}

#[test]
fn settings_of_the_process_are_accepted_or_refused() {
    let target = Steered::start();
    for (method, params) in [
        ("nvmf_set_config", json!({"acceptor_poll_rate": 10000})),
        (
            "nvmf_set_config",
            json!({"admin_cmd_passthru": {"identify_ctrlr": false}}),
        ),
        ("nvmf_set_max_subsystems", json!({"max_subsystems": 1024})),
        ("log_set_level", json!({"level": "ERROR"})),
    ] {
        assert_eq!(
            target.done(method, params.clone()),
            true,
            "{method} {params}"
        );
    }
    assert_eq!(target.done("log_get_level", json!({})), "ERROR");
    assert_eq!(target.done("cairn_log_get", json!({})), "error");
    for (method, params) in [
        ("nvmf_set_config", json!({"nonsense": 1})),
        (
            "nvmf_set_config",
            json!({"admin_cmd_passthru": {"identify_ctrlr": true}}),
        ),
        ("nvmf_set_max_subsystems", json!({"max_subsystems": 1025})),
        ("log_set_level", json!({"level": "LOUD"})),
    ] {
        let refused = target.refused(method, params.clone());
        assert_eq!(refused, -32602, "{method} {params}");
    }
}
