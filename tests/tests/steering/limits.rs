use std::time::Duration;

use cairn_initiator::{Data, Ticket, command};
use serde_json::{Value, json};

use crate::target::{NQN, Steered};

const ENOENT: i64 = -2;

fn of_first(mut limits: Value) -> Value {
    limits["nqn"] = json!(NQN);
    limits["nsid"] = json!(1);
    limits
}

#[test]
fn limits_are_set_shown_kept_and_removed() {
    let mut target = Steered::start();
    assert_eq!(target.done("cairn_limit_list", json!({})), json!([]));
    let set = |target: &Steered, more: Value| target.done("cairn_limit_set", of_first(more));
    assert_eq!(
        set(&target, json!({"iops": 500, "read": "10MiB"}))["changed"],
        true
    );
    set(
        &target,
        json!({"read": "0", "total": "2097152", "burst_ms": 50, "outstanding": 16}),
    );
    let shown = json!([{
        "nqn": NQN, "nsid": 1, "each_host": false, "host": null, "iops": 500, "read": null, "write": null,
        "total": 2 << 20, "burst_ms": 50, "outstanding": 16, "weight": null,
    }]);
    assert_eq!(target.done("cairn_limit_list", json!({})), shown);
    target.crash();
    assert_eq!(target.done("cairn_limit_list", json!({})), shown);
    for (params, code) in [
        (of_first(json!({})), -32602),
        (of_first(json!({"read": "fast"})), -32602),
        (of_first(json!({"write": "1KiB"})), -32602),
        (of_first(json!({"burst_ms": 100_000})), -32602),
        (of_first(json!({"outstanding": 70_000})), -32602),
        (json!({"nqn": NQN, "outstanding": 16}), -32602),
        (json!({"nqn": NQN, "nsid": 9, "iops": 1}), ENOENT),
    ] {
        assert_eq!(
            target.refused("cairn_limit_set", params.clone()),
            code,
            "{params}"
        );
    }
    assert_eq!(
        target.done("cairn_limit_list", json!({})),
        shown,
        "nothing was changed"
    );
    of_all_namespaces(&target);
    of_one_host(&target);
    assert_eq!(target.done("cairn_limit_remove", of_first(json!({}))), true);
    assert_eq!(target.done("cairn_limit_list", json!({})), json!([]));
    let remove = of_first(json!({}));
    assert_eq!(target.refused("cairn_limit_remove", remove), ENOENT);
    let text = target.done("cairn_config_get", json!({}));
    assert!(!text["text"].as_str().unwrap().contains("limits"), "{text}");
}

fn of_all_namespaces(target: &Steered) {
    let of = |each_host: bool| json!({"nqn": NQN, "each_host": each_host});
    for (each_host, rate) in [(true, "1MiB"), (false, "3MiB")] {
        let mut set = of(each_host);
        set["write"] = json!(rate);
        assert_eq!(target.done("cairn_limit_set", set)["changed"], true);
    }
    let shown = target.done("cairn_limit_list", json!({}));
    let shown: Vec<_> = shown.as_array().unwrap().iter().collect();
    let shown: Vec<_> = shown
        .iter()
        .map(|one| (&one["each_host"], &one["write"]))
        .collect();
    let [all, each, none] = [json!(3 << 20), json!(1 << 20), Value::Null];
    let [yes, no] = [json!(true), json!(false)];
    assert_eq!(shown, [(&no, &all), (&yes, &each), (&no, &none)]);
    for each_host in [true, false] {
        assert_eq!(target.done("cairn_limit_remove", of(each_host)), true);
        assert_eq!(target.refused("cairn_limit_remove", of(each_host)), ENOENT);
    }
    let both = of_first(json!({"each_host": true, "iops": 1}));
    assert_eq!(target.refused("cairn_limit_set", both), -32602);
}

fn of_one_host(target: &Steered) {
    const HOST: &str = "nqn.2024-01.com.example:limited";
    let of = |mut more: Value| {
        more["nqn"] = json!(NQN);
        more["host"] = json!(HOST);
        more
    };
    let list = || target.done("cairn_limit_list", json!({}))[0].clone();
    let set = |more: Value| target.done("cairn_limit_set", of(more))["changed"].clone();
    assert_eq!(set(json!({"iops": 70, "read": "1MiB"})), true);
    assert_eq!(set(json!({"read": "2MiB"})), true);
    let shown = list();
    let both = (&shown["host"], &shown["iops"], &shown["read"]);
    assert_eq!(both, (&json!(HOST), &json!(70), &json!(2 << 20)));
    assert_eq!(set(json!({"iops": 0, "read": "0"})), true);
    let shown = list();
    let both = (&shown["host"], &shown["iops"]);
    assert_eq!(both, (&json!(HOST), &Value::Null));
    let both = of(json!({"each_host": true, "iops": 1}));
    assert_eq!(target.refused("cairn_limit_set", both), -32602);
    assert_eq!(target.done("cairn_limit_remove", of(json!({}))), true);
    let again = of(json!({}));
    assert_eq!(target.refused("cairn_limit_remove", again), ENOENT);
}

#[test]
fn limits_of_a_host_that_may_not_connect_are_warned_of() {
    const TYPED: &str = "nqn.2024-01.com.example:zz";
    let target = Steered::start();
    target.done("cairn_host_any", json!({"nqn": NQN, "allow": false}));
    let set = json!({"nqn": NQN, "host": TYPED, "iops": 5});
    let warnings = |answer: Value| answer["warnings"].to_string();
    let warned = warnings(target.done("cairn_limit_set", set.clone()));
    assert!(
        warned.contains("does not permit") && warned.contains(TYPED),
        "{warned}"
    );
    let status = target.done("cairn_status", json!({}));
    assert!(warnings(status).contains("apply to no host"));
    target.done("cairn_host_add", json!({"nqn": NQN, "host": TYPED}));
    assert_eq!(warnings(target.done("cairn_limit_set", set)), "[]");
}

#[test]
fn a_limit_counts_for_a_host_that_is_connected() {
    let target = Steered::start();
    let mut host = target.connect("one");
    target.done("cairn_limit_set", of_first(json!({"iops": 1})));
    let mut submit = || {
        let data = Data::whole(host.buffer(512).unwrap());
        host.submit(command::read(1, 0, 1), data).unwrap()
    };
    let tickets: Vec<Ticket> = (0..60).map(|_| submit()).collect();
    let end = std::time::Instant::now() + Duration::from_millis(200);
    while std::time::Instant::now() < end {
        host.poll();
    }
    target.done("cairn_limit_set", of_first(json!({"iops": 0})));
    for ticket in tickets {
        host.wait(ticket).answer.unwrap();
    }
    host.shutdown().unwrap();
}

#[test]
fn limits_by_spdks_names_are_the_namespace_s() {
    let target = Steered::start();
    let malloc = json!({"num_blocks": 2048, "block_size": 512, "name": "Malloc0"});
    target.done("bdev_malloc_create", malloc);
    let limits = |target: &Steered| {
        let bdevs = target.done("bdev_get_bdevs", json!({"name": "Malloc0"}));
        bdevs[0]["assigned_rate_limits"].clone()
    };
    let shown = |ios: u64, total: u64, read: u64, write: u64| {
        json!({
            "rw_ios_per_sec": ios, "rw_mbytes_per_sec": total, "r_mbytes_per_sec": read,
            "w_mbytes_per_sec": write,
        })
    };
    assert_eq!(limits(&target), shown(0, 0, 0, 0));
    let set = |more: Value| {
        let mut params = more;
        params["name"] = json!("Malloc0");
        assert_eq!(target.done("bdev_set_qos_limit", params), true);
    };
    set(json!({"rw_ios_per_sec": 1500, "r_mbytes_per_sec": 7}));
    assert_eq!(
        limits(&target),
        shown(2000, 0, 7, 0),
        "thousands, rounded up"
    );
    let add = json!({"nqn": NQN, "namespace": {"bdev_name": "Malloc0"}});
    assert_eq!(target.done("nvmf_subsystem_add_ns", add), 2);
    assert_eq!(limits(&target), shown(2000, 0, 7, 0));
    set(json!({"rw_ios_per_sec": 0, "rw_mbytes_per_sec": 9, "w_mbytes_per_sec": 1}));
    assert_eq!(limits(&target), shown(0, 9, 7, 1));
    let listed = target.done("cairn_limit_list", json!({}));
    assert_eq!(
        (&listed[0]["nsid"], &listed[0]["total"]),
        (&json!(2), &json!(9 << 20))
    );
    let saved = target.done("framework_get_config", json!({"name": "bdev"}));
    let request = json!({"method": "bdev_set_qos_limit", "params": {
        "name": "Malloc0", "rw_ios_per_sec": 0, "rw_mbytes_per_sec": 9, "r_mbytes_per_sec": 7,
        "w_mbytes_per_sec": 1,
    }});
    assert!(saved.as_array().unwrap().contains(&request), "{saved:#}");
    set(json!({"rw_mbytes_per_sec": 0, "r_mbytes_per_sec": 0, "w_mbytes_per_sec": 0}));
    assert_eq!(target.done("cairn_limit_list", json!({})), json!([]));
}
