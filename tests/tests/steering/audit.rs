//! Audit log of hosts, requests and reloads. All lines must be complete, even after a crash.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cairn_initiator::{Host, HostOptions};
use cairn_roce::Soft;
use cairn_tests::harness::{host_nqn, nqn, own_loopback_address};
use serde_json::{Value, json};

use crate::target::{NQN, PATIENCE, Steered};

struct Case {
    folder: tempfile::TempDir,
    target: Steered,
}

impl Case {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.json");
        let target = Steered::start_with(&format!("[audit]\nfile = \"{}\"\n", path.display()));
        Self { folder, target }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("audit.json")
    }

    fn wait_for(&self, count: usize, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut found = lines(&self.path());
            found.retain(&wanted);
            if found.len() >= count {
                return found;
            }
            assert!(Instant::now() < deadline, "{:?}", lines(&self.path()));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn wait_for_sum(&self, event: &str, sum: u64) -> usize {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut found = lines(&self.path());
            found.retain(|line| line["event"] == event);
            let counts = found.iter().map(|line| line["count"].as_u64().unwrap_or(1));
            if counts.sum::<u64>() == sum {
                return found.len();
            }
            assert!(Instant::now() < deadline, "{found:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
        text => text.unwrap(),
    };
    let whole = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    whole
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

fn is(name: &'static str) -> impl Fn(&Value) -> bool {
    move |line| line["event"] == name
}

#[test]
fn hosts_come_and_go_with_their_names_and_their_reasons() {
    let case = Case::start();
    let host = case.target.connect("a");
    let connects = case.wait_for(2, is("connect"));
    let admin = connects.iter().find(|line| line["qid"] == 0).unwrap();
    assert_eq!(admin["host"], host_nqn("a").to_string());
    assert_eq!(admin["subsystem"], NQN);
    assert_eq!(admin["provider"], "soft");
    assert_eq!(admin["authentication"], "none");
    assert_eq!(admin["local"], format!("{}:4420", case.target.address));
    assert!(admin["cntlid"].is_u64() && admin["port"].is_u64());
    assert_eq!(admin["hostid"].as_str().unwrap().len(), 36);
    drop(host);
    let ends = case.wait_for(connects.len(), is("disconnect"));
    assert!(ends.iter().all(|line| line["cntlid"] == admin["cntlid"]));
    let reasons: Vec<_> = ends.iter().map(|line| &line["reason"]).collect();
    assert!(
        reasons
            .iter()
            .any(|reason| **reason == "the host disconnected"),
        "{reasons:?}"
    );
}

#[test]
fn refusals_in_a_row_are_few_lines_with_their_count() {
    let case = Case::start();
    let other = nqn("nqn.2024-01.com.example:no-such");
    let options = HostOptions {
        subnqn: other,
        local: Some(own_loopback_address().into()),
        ..case.target.options("stranger")
    };
    const TIMES: u64 = 40;
    let begun = Instant::now();
    for _ in 0..TIMES {
        Host::connect(&Soft::default(), options.clone()).unwrap_err();
    }
    let seconds = begun.elapsed().as_secs() as usize + 1;
    let refused = case.wait_for_sum("refuse", TIMES);
    assert!(refused <= 2 * (seconds + 1), "{refused} lines, {seconds} s");
    let line = case.wait_for(1, is("refuse")).remove(0);
    assert_eq!(line["host"], host_nqn("stranger").to_string());
    assert_eq!(line["subsystem"], other.to_string());
    assert_eq!(line["at"], "connect");
}

#[test]
fn requests_and_reloads_have_their_user_and_their_outcome() {
    let case = Case::start();
    let target = &case.target;
    target.done(
        "cairn_namespace_add",
        json!({"nqn": NQN, "export": "mem:1MiB"}),
    );
    target.refused("cairn_namespace_remove", json!({"nqn": NQN, "nsid": 77}));
    target.done("cairn_namespace_list", json!({}));
    target.done("cairn_reload", json!({}));
    fs::write(target.config(), "[target]\nreactors = \"none\"\n").unwrap();
    target.refused("cairn_reload", json!({}));
    let changes = case.wait_for(4, is("change"));
    let seen: Vec<_> = changes
        .iter()
        .map(|line| {
            (
                line["method"].as_str().unwrap(),
                line["outcome"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("cairn_namespace_add", "done"),
            ("cairn_namespace_remove", "refused"),
            ("cairn_reload", "done"),
            ("cairn_reload", "refused"),
        ]
    );
    for line in &changes {
        assert_eq!(line["pid"], std::process::id());
        assert_eq!(line["uid"], rustix::process::geteuid().as_raw());
    }
    assert!(changes[1]["params"].as_str().unwrap().contains("77"));
    let reloads = case.wait_for(2, is("reload"));
    assert_eq!(reloads[0]["outcome"], "done");
    assert_eq!(reloads[1]["outcome"], "refused");
    assert!(reloads[1]["reason"].as_str().unwrap().contains("reactors"));
}

#[test]
fn logrotate_moves_the_file_and_a_reload_begins_another() {
    let case = Case::start();
    case.wait_for(1, is("start"));
    let old = case.folder.path().join("audit.json.1");
    fs::rename(case.path(), &old).unwrap();
    case.target.done("cairn_reload", json!({}));
    let deadline = Instant::now() + PATIENCE;
    while !case.path().exists() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(10));
    }
    let _host = case.target.connect("a");
    case.wait_for(2, is("connect"));
    assert!(!lines(&old).iter().any(is("connect")));
}

#[test]
fn a_target_that_is_killed_leaves_whole_lines_and_goes_on_behind_them() {
    let mut case = Case::start();
    let hosts: Vec<Host> = ["a", "b", "c"].map(|name| case.target.connect(name)).into();
    let connects = case.wait_for(6, is("connect")).len();
    case.target.crash();
    drop(hosts);
    case.wait_for(2, is("start"));
    let all = lines(&case.path());
    assert!(all.iter().filter(|line| is("connect")(line)).count() >= connects);
}

#[test]
fn a_disk_that_is_full_is_degraded_and_stops_no_host() {
    let target = Steered::start_with("[audit]\nfile = \"/dev/full\"\n");
    let host = target.connect("a");
    let deadline = Instant::now() + PATIENCE;
    let reason = loop {
        let status = target.done("cairn_status", json!({}));
        if let Some(missing) = status["missing"].as_array().unwrap().first() {
            assert_eq!(missing["kind"], "audit");
            break missing["reason"].as_str().unwrap().to_owned();
        }
        assert!(Instant::now() < deadline);
    };
    assert!(
        reason.contains("/dev/full: No space left on device"),
        "{reason}"
    );
    drop(host);
    let text = target.text().replace("file = \"/dev/full\"\n", "");
    fs::write(target.config(), text).unwrap();
    target.done("cairn_reload", json!({}));
    let status = target.done("cairn_status", json!({}));
    assert_eq!(status["missing"], json!([]));
}
