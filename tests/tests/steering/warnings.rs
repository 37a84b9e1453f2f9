use std::fs::{self, File};

use cairn_initiator::Host;
use cairn_roce::Soft;
use cairn_tests::harness::host_nqn;
use serde_json::json;

use crate::target::{NQN, Steered, until};

const MIB: u64 = 1 << 20;

fn assert_said(target: &Steered, words: &[&str]) {
    let log = target.log();
    let said = |line: &str| words.iter().all(|word| line.contains(word));
    assert!(log.lines().any(said), "{words:?} is not in\n{log}");
}

#[test]
fn a_file_that_loses_something_is_named() {
    let target = Steered::start_logged_after(|folder, _| {
        let path = folder.join("disk.img");
        File::create(&path).unwrap().set_len(MIB + 100).unwrap();
        format!(
            "[[subsystem.namespace]]\nnsid = 2\nexport = \"{}\"\n",
            path.display()
        )
    });
    let path = target.folder.path().join("disk.img");
    assert_said(
        &target,
        &["disk.img", "not a multiple of the block", "bytes=100"],
    );
    assert!(!target.log().contains("lost data"));
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(MIB / 2)
        .unwrap();
    target.done("cairn_reload", json!({}));
    assert_said(&target, &["disk.img", "lost data", "bytes=524288"]);
    assert!(!target.log().contains("was deleted"));
    fs::remove_file(&path).unwrap();
    target.done("cairn_reload", json!({}));
    assert_said(&target, &["disk.img", "was deleted"]);
}

#[test]
fn a_file_that_loses_something_is_noticed_by_itself() {
    let target = Steered::start_logged_after(|folder, _| {
        let namespace = |nsid: u32, name: &str| {
            let path = folder.join(name);
            File::create(&path).unwrap().set_len(MIB).unwrap();
            format!(
                "[[subsystem.namespace]]\nnsid = {nsid}\nexport = \"{}\"\n",
                path.display()
            )
        };
        namespace(2, "cut.img") + &namespace(3, "deleted.img")
    });
    let at = |name| target.folder.path().join(name);
    let count = |what: &str| target.done("cairn_status", json!({}))[what].clone();
    assert_eq!(count("failed_namespaces"), 0);
    assert_eq!(count("deleted_namespaces"), 0);

    let cut = File::options().write(true).open(at("cut.img")).unwrap();
    cut.set_len(MIB / 2).unwrap();
    until("the failure", || count("failed_namespaces") == 1);
    assert_said(&target, &["cut.img", "smaller than its namespace"]);

    fs::hard_link(at("deleted.img"), at("other.img")).unwrap();
    fs::remove_file(at("deleted.img")).unwrap();
    let before = target.log();
    fs::remove_file(at("other.img")).unwrap();
    until("the deletion", || count("deleted_namespaces") == 1);
    assert!(!before.contains("was deleted"), "it has another name");
    assert_said(&target, &["deleted.img", "was deleted"]);

    let namespaces = target.done("cairn_namespace_list", json!({}));
    let states = namespaces.as_array().unwrap().iter();
    let states: Vec<_> = states
        .map(|one| (one["failed"] == true, one["deleted"] == true))
        .collect();
    assert_eq!(states, [(false, false), (true, false), (false, true)]);
}

#[test]
fn another_file_at_the_path_of_a_namespace_is_not_taken_for_its_own() {
    let target = Steered::start_logged_after(|folder, _| {
        let path = folder.join("disk.img");
        File::create(&path).unwrap().set_len(MIB).unwrap();
        format!("[[subsystem.namespace]]\nnsid = 2\nexport = {path:?}\n")
    });
    let at = |name| target.folder.path().join(name);
    let set = json!({"nqn": NQN, "nsid": 2, "export": at("disk.img")});
    target.done("cairn_namespace_set", set.clone());
    let other = File::create(at("other.img")).unwrap();
    other.set_len(2 * MIB).unwrap();
    fs::rename(at("other.img"), at("disk.img")).unwrap();
    for method in ["cairn_namespace_set", "cairn_namespace_add"] {
        let refused = target.call(method, set.clone()).unwrap_err().to_string();
        for words in ["another file is at", "namespace remove", "namespace add"] {
            assert!(refused.contains(words), "{method}: {refused}");
        }
    }
    target.done("cairn_reload", json!({}));
    let problems = target.done("cairn_status", json!({}))["problems"].to_string();
    assert!(
        problems.contains("another file is at its path"),
        "{problems}"
    );
    let remove = json!({"nqn": NQN, "nsid": 2, "force": true});
    target.done("cairn_namespace_remove", remove);
    target.done("cairn_namespace_add", set);
    let mut host = target.connect("a");
    assert_eq!(host.namespace(2).unwrap().nsze.get(), 2 * MIB / 512);
    assert_eq!(target.done("cairn_status", json!({}))["health"], "ok");
}

#[test]
fn a_host_that_is_not_allowed_is_named_with_the_line_that_allows_it() {
    let target = Steered::start_logged_after(|_, _| String::new());
    target.done("cairn_host_any", json!({"nqn": NQN, "allow": false}));
    assert!(Host::connect(&Soft::default(), target.options("stranger")).is_err());
    let host = host_nqn("stranger");
    let line = format!("admit=\"{}\"", host.raw());
    assert_said(&target, &["Connect refused", NQN, &line]);
    let params = json!({"nqn": NQN, "host": host.raw()});
    target.done("cairn_host_add", params);
    target.connect("stranger");
}

#[test]
fn a_namespace_of_a_host_that_is_not_admitted_is_named_until_the_host_is_admitted() {
    let target = Steered::start_logged_after(|_, _| String::new());
    let said = || target.done("cairn_status", json!({}))["warnings"].to_string();
    let host = host_nqn("other");
    let words = ["namespace 7 of", "does not admit, such as", host.raw()];
    let is_named = |text: &str| words.iter().all(|word| text.contains(word));
    target.done("cairn_host_any", json!({"nqn": NQN, "allow": false}));
    assert!(!is_named(&said()), "{}", said());
    let namespace = json!({"nqn": NQN, "nsid": 7, "export": "mem:1MiB", "hosts": [host.raw()]});
    target.done("cairn_namespace_add", namespace);
    assert!(is_named(&said()), "{}", said());
    assert_said(&target, &words);
    let status = target.command(&["status"]).stdout;
    let status = String::from_utf8(status).unwrap();
    assert!(status.contains("note: namespace 7 of"), "{status}");
    target.done("cairn_host_add", json!({"nqn": NQN, "host": host.raw()}));
    assert!(!is_named(&said()), "{}", said());
    let count = target.log().lines().filter(|line| is_named(line)).count();
    assert_eq!(count, 1, "logged once");
}
