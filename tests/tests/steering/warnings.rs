//! What the log says of disks that lose something, and of hosts that are refused.

use std::fs::{self, File};

use cairn_initiator::Host;
use cairn_roce::Soft;
use cairn_tests::harness::host_nqn;
use serde_json::json;

use crate::target::{NQN, Steered};

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
        &["disk.img", "no multiple of the block", "bytes=100"],
    );
    assert!(!target.log().contains("shrunk"));
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(MIB / 2)
        .unwrap();
    target.done("cairn_reload", json!({}));
    assert_said(&target, &["disk.img", "has shrunk", "blocks=1024"]);
    assert!(!target.log().contains("was deleted"));
    fs::remove_file(&path).unwrap();
    target.done("cairn_reload", json!({}));
    assert_said(&target, &["disk.img", "was deleted"]);
}

#[test]
fn a_host_that_is_not_allowed_is_named_with_the_line_that_allows_it() {
    let target = Steered::start_logged_after(|_, _| String::new());
    target.done("cairn_host_any", json!({"nqn": NQN, "allow": false}));
    assert!(Host::connect(&Soft::default(), target.options("stranger")).is_err());
    let host = host_nqn("stranger");
    let line = format!("allowed_hosts = [\"{}\"]", host.raw());
    assert_said(&target, &["Connect refused", NQN, &line]);
    let params = json!({"nqn": NQN, "host": host.raw()});
    target.done("cairn_host_add", params);
    target.connect("stranger");
}
