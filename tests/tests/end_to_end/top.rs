use std::process::{Command, Output};

use cairn_initiator::{Data, command};
use cairn_tests::harness::{METRICS, NQN, TestTarget, host_nqn, subsystem};
use serde_json::Value;

const READ_BYTES: u32 = 4096;

fn top(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cairn-target-process"))
        .arg("top")
        .args(arguments)
        .output()
        .unwrap()
}

fn succeeded(output: Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn while_a_host_reads<T: Send>(target: &TestTarget, look: impl FnOnce() -> T + Send) -> T {
    let mut host = target.try_connect(target.options("reader")).unwrap();
    let mut buffer = host.buffer(READ_BYTES as usize).unwrap();
    std::thread::scope(|scope| {
        let looking = scope.spawn(look);
        while !looking.is_finished() {
            let data = Data::start_of(&mut buffer, READ_BYTES);
            host.run(command::read(1, 0, 8), data).unwrap();
        }
        host.shutdown().unwrap();
        let seen = looking.join();
        seen.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn top_shows_who_waits_for_limits() {
    let disks = subsystem(NQN, &["mem:1MiB limits = { iops = 20 }"]);
    let target = TestTarget::start(&format!("{METRICS}{disks}"));
    let address = target.metrics_address().to_string();
    let arguments = ["--metrics", &address, "-n", "4", "-i", "0.5", "-o", "json"];
    let json = while_a_host_reads(&target, || succeeded(top(&arguments)));
    let lines = json.lines().map(|line| serde_json::from_str(line).unwrap());
    let lines: Vec<Value> = lines.collect();
    for part in ["hosts", "namespaces"] {
        let waits = |line: &Value| line[part][0]["limit_waits_per_s"].as_f64() > Some(0.0);
        assert!(lines.iter().any(waits), "{json}");
    }
    target.stop();
}

#[test]
fn top_shows_who_does_what() {
    let disks = subsystem(NQN, &["mem:1MiB block_size = 512"]);
    let target = TestTarget::start(&format!("{METRICS}{disks}"));
    let address = target.metrics_address().to_string();
    let (json, text) = while_a_host_reads(&target, || {
        let twice = ["--metrics", &address, "-n", "2", "-i", "0.3"];
        let json = succeeded(top(&[&twice[..], &["-o", "json"]].concat()));
        (json, succeeded(top(&twice)))
    });
    let lines: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    let name = host_nqn("reader");
    for line in &lines {
        let host = &line["hosts"][0];
        assert_eq!(host["host_nqn"], name.raw(), "{line}");
        assert_eq!(host["subsystem"], NQN);
        let namespace = &line["namespaces"][0];
        assert_eq!(namespace["backing"], "memory");
        for load in [&host["load"], &namespace["load"]] {
            let reads = load["reads_per_s"].as_f64().unwrap();
            let bytes = load["read_bytes_per_s"].as_f64().unwrap();
            assert!(reads > 0.0, "{line}");
            let seconds = line["seconds"].as_f64().unwrap();
            let apart = (bytes / f64::from(READ_BYTES) - reads).abs() * seconds;
            assert!(apart < 8.0, "{line}");
            assert_eq!(load["writes_per_s"], 0.0, "{line}");
            assert!(load["p50_us"].as_f64() > Some(0.0), "{line}");
            assert!(load["p99_us"].as_f64() >= load["p50_us"].as_f64(), "{line}");
        }
        assert!(namespace["stage_p50_us"]["data_out"].as_f64() >= Some(0.0));
        assert!(line["reactors"][0]["busy"].as_f64() > Some(0.0), "{line}");
        assert!(line["reactors"][0]["queue_pairs"].as_f64() >= Some(2.0));
        assert_eq!(line["devices"].as_array().unwrap().len(), 1, "{line}");
    }
    for shown in [
        "REACTOR",
        "HOST",
        "NSID",
        NQN,
        name.raw(),
        "memory",
        "P99 us",
    ] {
        assert!(text.contains(shown), "no {shown} in:\n{text}");
    }
    target.stop();
}

#[test]
fn top_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cairn.toml");
    let disks = subsystem(NQN, &["mem:1MiB"]);
    let listener = "[[listener]]\naddress = \"127.0.0.1\"\n";
    std::fs::write(&file, format!("{listener}{disks}")).unwrap();
    let output = top(&["--config", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("[metrics] listen ="), "{said}");
    let output = top(&["-i", "0"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("0.1 to 3600"), "{said}");
}
