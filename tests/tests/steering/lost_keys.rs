//! Key files that are lost, at a start and later.

use std::fs;

use cairn_initiator::Host;
use cairn_roce::Soft;
use serde_json::json;

use crate::keys::{assert_refused, connect, file, host, start};
use crate::target::{NQN, Steered, until};

#[test]
fn a_lost_key_file_shuts_out_its_hosts_alone() {
    let mut target = start();
    let path = file(&target, "lost", 3);
    let key = json!({"nqn": NQN, "host": host(&target), "dhchap_key": path});
    target.done("cairn_host_key_set", key);
    target.done("cairn_host_any", json!({"nqn": NQN, "allow": true}));
    let missing = |target: &Steered| target.done("cairn_status", json!({}))["missing"].clone();
    let is_lost = |target: &Steered| {
        let missing = missing(target);
        assert_eq!(missing[0]["kind"], "keys", "{missing}");
        let reason = missing[0]["reason"].as_str().unwrap();
        assert!(reason.contains(path.to_str().unwrap()), "{reason}");
    };
    fs::remove_file(&path).unwrap();
    target.done("cairn_reload", json!({}));
    is_lost(&target);
    drop(connect(&target, Some(3), None).unwrap());
    // A change that has nothing to do with keys is possible.
    target.done(
        "cairn_namespace_add",
        json!({"nqn": NQN, "export": "mem:1MiB"}),
    );
    target.done(
        "cairn_subsystem_set",
        json!({"nqn": NQN, "serial": "other"}),
    );
    is_lost(&target);
    drop(Host::connect(&Soft::default(), target.options("b")).unwrap());

    target.crash_logged_around(|| fs::write(&path, "").unwrap());
    is_lost(&target);
    for seed in [None, Some(3)] {
        assert_refused(connect(&target, seed, None));
    }
    drop(Host::connect(&Soft::default(), target.options("b")).unwrap());
    target.done(
        "cairn_subsystem_set",
        json!({"nqn": NQN, "serial": "third"}),
    );
    is_lost(&target);
    assert_refused(connect(&target, Some(3), None));
    file(&target, "lost", 3);
    until("the key", || missing(&target) == json!([]));
    drop(connect(&target, Some(3), None).unwrap());
    assert_refused(connect(&target, None, None));
}

#[test]
fn a_new_key_that_is_unreadable_is_refused() {
    let target = start();
    let key = json!({"nqn": NQN, "host": host(&target), "dhchap_key": "/no/such/key"});
    let error = target.call("cairn_host_key_set", key).unwrap_err();
    assert!(error.to_string().contains("/no/such/key"), "{error}");
}

#[test]
fn lost_keys_of_one_subsystem_are_one_line_of_the_log() {
    let mut target = start();
    let hosts = [host(&target), target.options("b").hostnqn.raw().to_owned()];
    let mut paths = Vec::new();
    for (name, seed) in [("first", 3), ("second", 4)] {
        let (path, host) = (file(&target, name, seed), &hosts[paths.len()]);
        let key = json!({"nqn": NQN, "host": host, "dhchap_key": path});
        target.done("cairn_host_add", json!({"nqn": NQN, "host": host}));
        target.done("cairn_host_key_set", key);
        paths.push(path);
    }
    target.crash_logged_around(|| paths.iter().for_each(|path| fs::remove_file(path).unwrap()));
    for _ in 0..2 {
        target.done("cairn_reload", json!({}));
    }
    let log = target.log();
    assert_eq!(
        log.matches("a configured object is missing").count(),
        1,
        "{log}"
    );
}
