//! The commands `fabric` and `doctor`.

mod common;

use std::fs;
use std::path::Path;

use common::{PROGRAM, folder, run};
use serde_json::Value;

fn machine(folder: &Path) {
    let ports = folder.join("sys/kernel/config/rdma_cm/mlx5_0/ports");
    for port in ["1", "2"] {
        let device = folder.join("sys/class/infiniband/mlx5_0/ports").join(port);
        fs::create_dir_all(device).unwrap();
        let port = ports.join(port);
        fs::create_dir_all(&port).unwrap();
        fs::write(port.join("default_roce_mode"), "IB/RoCE v1\n").unwrap();
        fs::write(port.join("default_roce_tos"), "0\n").unwrap();
    }
}

fn setting(folder: &Path, port: u32, file: &str) -> String {
    let path = format!("sys/kernel/config/rdma_cm/mlx5_0/ports/{port}/{file}");
    fs::read_to_string(folder.join(path))
        .unwrap()
        .trim()
        .to_owned()
}

#[test]
fn settings_say_what_was_before_and_how_to_make_it_last() {
    let folder = tempfile::tempdir().unwrap();
    machine(folder.path());
    let root = folder.path().display();
    let (out, result) = run(&format!(
        "{PROGRAM} fabric set-mode mlx5_0 v2 --root {root}"
    ));
    assert_eq!(result, Ok(0));
    for port in [1, 2] {
        assert_eq!(setting(folder.path(), port, "default_roce_mode"), "RoCE v2");
        let line = format!(
            "mlx5_0 port {port}: default_roce_mode is \"RoCE v2\" (RoCE v2), was \"IB/RoCE v1\""
        );
        assert!(out.contains(&line), "{out}");
    }
    assert!(out.contains("ExecStart=/usr/bin/env cairn-target fabric set-mode mlx5_0 v2\n"));
    assert!(out.contains("[Install]"));

    let (out, result) = run(&format!(
        "{PROGRAM} fabric set-tos mlx5_0 96 --port 2 --root {root}"
    ));
    assert_eq!(result, Ok(0));
    assert_eq!(setting(folder.path(), 1, "default_roce_tos"), "0");
    assert_eq!(setting(folder.path(), 2, "default_roce_tos"), "96");
    assert!(
        out.contains("is \"96\" (ToS 96 (DSCP 24, SL 3)), was \"0\""),
        "{out}"
    );
    assert!(out.contains("set-tos mlx5_0 96 --port 2\n"), "{out}");
    assert!(
        out.contains("default-roce-tos-mlx5_0-port2.service"),
        "{out}"
    );
}

#[test]
fn a_setting_is_undone_by_the_command_that_it_names() {
    let folder = tempfile::tempdir().unwrap();
    machine(folder.path());
    let root = folder.path().display();
    for (command, file) in [
        ("set-mode mlx5_0 v2", "default_roce_mode"),
        ("set-tos mlx5_0 96", "default_roce_tos"),
    ] {
        let before = setting(folder.path(), 1, file);
        let command = format!("{PROGRAM} fabric {command} --port 1 --root {root} -o json");
        let (out, result) = run(&command);
        assert_eq!(result, Ok(0));
        let done: Value = serde_json::from_str(&out).unwrap();
        let change = &done["changes"][0];
        assert_eq!(change["was"], before.as_str());
        assert_eq!(change["is"], setting(folder.path(), 1, file).as_str());
        assert_ne!(change["is"], change["was"]);
        assert!(done["unit"].as_str().unwrap().starts_with("[Unit]\n"));
        let undo = change["undo"].as_str().unwrap();
        let (out, result) = run(&format!("{undo} --root {root}"));
        assert_eq!(result, Ok(0), "{undo}: {out}");
        assert_eq!(setting(folder.path(), 1, file), before);
        let (out, _) = run(&format!("{undo} --root {root}"));
        assert!(out.contains("as it was before"), "{out}");
    }
}

#[test]
fn a_setting_that_cannot_be_made_says_why() {
    let folder = tempfile::tempdir().unwrap();
    machine(folder.path());
    let root = folder.path().display();
    for (command, why) in [
        ("set-mode mlx5_7 v2", "there is no RDMA device \"mlx5_7\""),
        ("set-mode ../mlx5_0 v2", "there is no RDMA device"),
        ("set-tos mlx5_0 1 --port 3", "has no port 3, but [1, 2]"),
    ] {
        let (_, result) = run(&format!("{PROGRAM} fabric {command} --root {root}"));
        let error = result.unwrap_err();
        assert!(error.contains(why), "{command}: {error}");
    }
    fs::remove_dir_all(folder.path().join("sys/kernel")).unwrap();
    let (_, result) = run(&format!(
        "{PROGRAM} fabric set-mode mlx5_0 v2 --root {root}"
    ));
    assert!(result.unwrap_err().contains("modprobe rdma_cm"));
    let recording = common::folder().join("healthy.txt");
    let (_, result) = run(&format!(
        "{PROGRAM} fabric set-mode mlx5_0 v2 --root {}",
        recording.display()
    ));
    assert!(result.unwrap_err().contains("is a recording"));
}

#[test]
fn fix_runs_what_is_safe_and_leaves_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    machine(folder.path());
    let port = folder.path().join("sys/class/infiniband/mlx5_0/ports/1");
    for (file, content) in [
        ("state", "1: DOWN"),
        ("link_layer", "Ethernet"),
        ("gids/0", "fe80:0000:0000:0000:0202:c9ff:fe12:3456"),
        ("gids/1", "fe80:0000:0000:0000:0202:c9ff:fe12:3456"),
        ("gid_attrs/types/0", "IB/RoCE v1"),
        ("gid_attrs/types/1", "RoCE v2"),
        ("gid_attrs/ndevs/0", "eth0"),
    ] {
        let path = port.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let root = folder.path().display();
    let (out, result) = run(&format!(
        "{PROGRAM} doctor --fix --yes --interval 0 --root {root}"
    ));
    assert_eq!(result, Ok(2), "{out}");
    assert_eq!(setting(folder.path(), 1, "default_roce_mode"), "RoCE v2");
    assert!(
        out.contains("running: cairn-target fabric set-mode mlx5_0 v2 --port 1"),
        "{out}"
    );
    assert!(
        out.contains("running: ip link set eth0 up\n  failed:"),
        "{out}"
    );
    let (out, _) = run(&format!("{PROGRAM} doctor --interval 0 --root {root}"));
    assert!(!out.contains("[versions]"), "{out}");
}

#[test]
fn fixing_is_not_for_programs() {
    let root = folder().join("vf.txt");
    let (out, result) = run(&format!(
        "{PROGRAM} doctor --fix --yes -o json --root {}",
        root.display()
    ));
    assert!(result.unwrap_err().contains("-o json"));
    assert!(out.is_empty(), "{out}");
}

#[test]
fn the_exit_code_is_that_of_the_worst_finding() {
    for (name, code) in [
        ("healthy", 0),
        ("no-device", 0),
        ("bond-refused", 1),
        ("vf", 2),
    ] {
        let path = folder().join(format!("{name}.txt"));
        let (_, result) = run(&format!("{PROGRAM} doctor --root {}", path.display()));
        assert_eq!(result, Ok(code), "{name}");
    }
    let (_, result) = run(&format!("{PROGRAM} doctor --root /no/such/place"));
    assert!(result.is_err());
}

#[test]
fn json_has_what_the_table_has() {
    let root = folder().join("vf.txt");
    let (out, _) = run(&format!(
        "{PROGRAM} doctor -o json --root {}",
        root.display()
    ));
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["worst"], "error");
    let finding = &report["findings"][0];
    for field in ["rule", "severity", "subject", "what", "why"] {
        assert!(finding[field].is_string(), "{field}");
    }
    assert!(finding["evidence"][0]["path"].is_string());
    assert!(finding["fix"][0]["command"].is_string());
    let (out, _) = run(&format!(
        "{PROGRAM} fabric -o json --root {}",
        root.display()
    ));
    let fabric: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(fabric["devices"][0]["function"], "virtual");
}

#[test]
fn watch_has_rates_of_what_changed() {
    let root = folder().join("rxe.txt");
    let watch = format!(
        "{PROGRAM} fabric watch --interval 2 --count 2 --root {}",
        root.display()
    );
    let (out, result) = run(&format!("{watch} -o json"));
    assert_eq!(result, Ok(0));
    let lines: Vec<Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["per_second"]["rcvd_pkts"], 500.0);
    assert_eq!(
        lines[1]["per_second"].as_object().unwrap().len(),
        0,
        "nothing changed again"
    );
    let (out, _) = run(&watch);
    assert!(out.contains("rcvd_pkts  500 /s"), "{out}");
    assert!(out.contains("rxe0 port 1: nothing changes"), "{out}");
    let none = folder().join("no-device.txt");
    let (_, result) = run(&format!("{PROGRAM} fabric watch --root {}", none.display()));
    assert!(result.unwrap_err().contains("no RDMA device"));
}

#[test]
fn what_is_recorded_can_be_looked_at_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recording");
    let root = common::folder().join("healthy.txt");
    let command = format!(
        "{PROGRAM} fabric --root {} --record {}",
        root.display(),
        file.display()
    );
    let (first, result) = run(&command);
    assert_eq!(result, Ok(0));
    let (again, _) = run(&format!("{PROGRAM} fabric --root {}", file.display()));
    assert_eq!(again, first);
}
