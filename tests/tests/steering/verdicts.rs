//! Reports of `check`, and exit codes of `serve` with the same file.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use cairn_tests::process::program;
use serde_json::Value;

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(program("cairn-target-process"));
    command.args(args).output().unwrap()
}

fn check(file: &Path) -> (String, Option<i32>, String) {
    let file = file.to_str().unwrap();
    let table = run(&["check", file]);
    let json = run(&["check", file, "-o", "json"]);
    assert_eq!(table.status, json.status, "{file}");
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON alone");
    let text = String::from_utf8(table.stdout).unwrap();
    let last = text.lines().last().expect("a verdict").to_owned();
    let verdict = json["verdict"].as_str().expect("a verdict").to_owned();
    (last, table.status.code(), verdict)
}

fn config(folder: &Path, address: &str, path: &str) -> std::path::PathBuf {
    let file = folder.join("target.toml");
    let socket = folder.join("socket");
    let text = format!(
        "[target]\nprovider = \"soft\"\n[control]\nsocket = \"{}\"\n[[listener]]\naddress = \"{address}\"\n\
         [[subsystem]]\nnqn = \"nqn.2026-01.org.example:verdicts\"\nallow_any_host = true\n\
         [[subsystem.namespace]]\nnsid = 1\nexport = \"{path}\"\n",
        socket.display()
    );
    std::fs::write(&file, text).unwrap();
    file
}

#[test]
fn the_last_line_and_the_exit_code_of_check_agree() {
    let folder = tempfile::tempdir().unwrap();
    let at = cairn_tests::harness::own_loopback_address().to_string();

    let (last, code, verdict) = check(&config(folder.path(), &at, "mem:1MiB"));
    assert!(last.starts_with("ok: 1 listener"), "{last}");
    assert_eq!((code, verdict.as_str()), (Some(0), "ok"));

    let file = config(folder.path(), &at, "mem:1MiB");
    let text = std::fs::read_to_string(&file).unwrap();
    let mistyped = "allowed_hosts = [\"host1\"]";
    std::fs::write(&file, text.replace("allow_any_host = true", mistyped)).unwrap();
    let (last, code, verdict) = check(&file);
    assert!(last.starts_with("degraded: "), "{last}");
    assert_eq!((code, verdict.as_str()), (Some(1), "degraded"));

    let (last, code, verdict) = check(&config(folder.path(), &at, "/no/such/disk"));
    assert!(last.starts_with("degraded: "), "{last}");
    assert_eq!((code, verdict.as_str()), (Some(1), "degraded"));

    let wrong = folder.path().join("wrong.toml");
    let findings = |text: &str| {
        std::fs::write(&wrong, text).unwrap();
        let report = run(&["check", wrong.to_str().unwrap(), "-o", "json"]);
        let report: Value = serde_json::from_slice(&report.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap().clone();
        let place = |one: &Value| (one["line"].as_u64(), one["column"].as_u64());
        findings.iter().map(place).collect::<Vec<_>>()
    };
    let two = "[target]\nreactor = 1\n[metrics]\nlisten = 7\n[[listener]]\naddress = \"::1\"\n";
    let places = [(Some(2), Some(1)), (Some(4), Some(10))];
    assert_eq!(findings(two), places);
    let syntax = "[[subsystem]]\nnsid = = 1\n";
    assert_eq!(findings(syntax), [(Some(2), Some(8))]);

    let refused = config(folder.path(), &at, "mem:no-size");
    let (last, code, verdict) = check(&refused);
    assert!(last.starts_with("refused: "), "{last}");
    assert_eq!((code, verdict.as_str()), (Some(2), "refused"));
    let served = run(&["serve", "--config", refused.to_str().unwrap()]);
    assert_eq!(served.status.code(), Some(2), "serve refuses it, too");
}

#[test]
fn a_taken_udp_port_is_found_with_auto() {
    let folder = tempfile::tempdir().unwrap();
    let at = cairn_tests::harness::own_loopback_address();
    let file = config(folder.path(), &at.to_string(), "mem:1MiB");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"soft\"", "\"auto\"")).unwrap();
    assert_eq!(check(&file).1, Some(0));
    let taken = std::net::UdpSocket::bind((at, 4791)).unwrap();
    let output = run(&["check", file.to_str().unwrap()]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("UDP port 4791 is in use"), "{stderr}");
    assert_eq!(check(&file).1, Some(1));
    drop(taken);
}

#[test]
fn serve_exits_with_2_only_where_another_start_cannot_help() {
    let folder = tempfile::tempdir().unwrap();
    let at = cairn_tests::harness::own_loopback_address().to_string();
    let file = config(folder.path(), &at, "mem:1MiB");
    let valid = std::fs::read_to_string(&file).unwrap();
    let group = "[control]\ngroup = \"no-such-group\"";
    std::fs::write(&file, valid.replace("[control]", group)).unwrap();
    let (last, code, _) = check(&file);
    assert!(last.starts_with("refused: ") && code == Some(2), "{last}");
    let served = run(&["serve", "--config", file.to_str().unwrap()]);
    assert_eq!(served.status.code(), Some(2));
}

#[test]
fn an_unusable_key_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let at = cairn_tests::harness::own_loopback_address().to_string();
    let file = config(folder.path(), &at, "mem:1MiB");
    let text = std::fs::read_to_string(&file).unwrap();
    let keyed = "allow_any_host = true\ndhchap_key = \"/no/such/key\"";
    std::fs::write(&file, text.replace("allow_any_host = true", keyed)).unwrap();
    let (last, code, verdict) = check(&file);
    assert_eq!((code, verdict.as_str()), (Some(1), "degraded"), "{last}");
}

#[test]
fn a_change_of_a_target_without_a_file_is_said_to_end_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = cairn_tests::harness::own_loopback_address().to_string();
    let socket = folder.path().join("socket");
    let socket = socket.to_str().unwrap();
    let mut child = Command::new(program("cairn-target-process"))
        .args(["serve", "--log", "error", "--provider", "soft", "--listen"])
        .args([&at, "--export", "mem:1MiB", "--control", socket])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let mut lines = stdout.lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "ready"));
    let said = |args: &[&str]| {
        let output = run(&[args, &["--socket", socket]].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let added = said(&["subsystem", "add", "nqn.2024-01.com.example:more"]);
    assert!(
        added.contains("this change ends with it") && added.contains("config show"),
        "{added}"
    );
    for no_change in [&["subsystem", "list"][..], &["log", "info"]] {
        assert!(!said(no_change).contains("ends with it"), "{no_change:?}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn serve_exports_no_file_that_is_not_a_disk_image() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shadow");
    std::fs::write(&file, "root:*:19000:0:99999:7:::\n").unwrap();
    let served = run(&["serve", "--export", file.to_str().unwrap()]);
    let stderr = String::from_utf8(served.stderr).unwrap();
    assert_eq!(served.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("is not a disk image"), "{stderr}");
}

#[test]
fn a_target_without_a_listener_does_not_say_that_it_is_ready() {
    let folder = tempfile::tempdir().unwrap();
    let file = config(folder.path(), "192.0.2.77", "mem:1MiB");
    let mut child = Command::new(program("cairn-target-process"))
        .args(["serve", "--log", "error", "--config"])
        .arg(&file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let said = stdout
        .lines()
        .map_while(Result::ok)
        .find(|line| line.contains("ready"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(
        said.as_deref(),
        Some("not ready: no listener has its address yet")
    );
}

#[test]
fn a_subsystem_that_no_host_can_reach_for_lack_of_a_key_is_degraded() {
    let folder = tempfile::tempdir().unwrap();
    let at = cairn_tests::harness::own_loopback_address().to_string();
    let file = config(folder.path(), &at, "mem:1MiB");
    let text = std::fs::read_to_string(&file).unwrap();
    let hosts = "allowed_hosts = [\"nqn.2024-01.com.example:a\"]\nrequire_key = true";
    std::fs::write(&file, text.replace("allow_any_host = true", hosts)).unwrap();
    let (last, code, verdict) = check(&file);
    assert!(last.starts_with("degraded: "), "{last}");
    assert_eq!((code, verdict.as_str()), (Some(1), "degraded"));
    let report = run(&["check", "--offline", file.to_str().unwrap(), "-o", "json"]);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["warnings"], Value::Null);
    let [finding] = &report["findings"].as_array().unwrap()[..] else {
        panic!("{report}");
    };
    assert_eq!(finding["severity"], "warning");
    assert!(
        finding["text"].to_string().contains("no host can connect"),
        "{report}"
    );
    for key in ["line", "column"] {
        assert_eq!(finding.get(key), Some(&Value::Null), "{report}");
    }
}
