//! Dependencies that crates must not have.

use std::process::Command;

/// Crates that libraries must not use.
const OF_PROGRAMS: [&str; 5] = [
    "clap",
    "hdrhistogram",
    "signal-hook",
    "tracing-subscriber",
    "tokio",
];

fn crates_of(package: &str, features: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--edges", "normal", "--prefix", "none"])
        .args(["--format", "{lib}", "--package", package])
        .args(["--no-default-features", "--features", features])
        .output()
        .expect("cargo runs");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && text.lines().count() > 1,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text.lines()
        .map(|name| name.trim().replace('_', "-"))
        .collect()
}

#[test]
fn the_lock_file_of_the_fuzz_targets_is_complete() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--format-version", "1"])
        .args(["--manifest-path", "../fuzz/Cargo.toml"])
        .output()
        .expect("cargo runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "run `cargo metadata --manifest-path fuzz/Cargo.toml`, and commit its lock file: {error}"
    );
}

#[test]
fn the_initiators_library_brings_no_command_line() {
    let crates = crates_of("cairn-initiator", "soft,verbs");
    assert!(crates.iter().any(|name| name == "cairn-rdma"), "{crates:?}");
    for name in OF_PROGRAMS {
        assert!(
            !crates.contains(&name.replace('_', "-")),
            "the library depends on {name}"
        );
    }
}

#[test]
fn the_initiators_library_brings_only_the_wanted_provider() {
    for (feature, with, without) in [
        ("soft", "cairn-roce", "cairn-verbs"),
        ("verbs", "cairn-verbs", "cairn-roce"),
    ] {
        let crates = crates_of("cairn-initiator", feature);
        let has = |wanted: &str| crates.iter().any(|name| name == wanted);
        assert!(has(with) && !has(without), "{feature}: {crates:?}");
    }
}

#[test]
fn block_io_stands_alone() {
    let crates = crates_of("cairn-disk", "");
    assert!(crates.iter().any(|name| name == "cairn-rbd"), "{crates:?}");
    let above = [
        "nvme-proto",
        "cairn-config",
        "cairn-rdma",
        "cairn-target",
        "serde",
    ];
    for name in OF_PROGRAMS.iter().chain(&above) {
        assert!(
            !crates.iter().any(|one| one == name),
            "it depends on {name}"
        );
    }
}

#[test]
fn the_dialect_of_spdk_knows_no_server() {
    let crates = crates_of("cairn-interop", "");
    assert!(
        crates.iter().any(|name| name == "cairn-control"),
        "{crates:?}"
    );
    for name in ["cairn-target", "cairn-data-path", "cairn-disk", "clap"] {
        assert!(
            !crates.iter().any(|one| one == name),
            "it depends on {name}"
        );
    }
}

#[test]
fn the_protocol_stands_alone() {
    let crates = crates_of("nvme-proto", "");
    for name in ["cairn-base", "libc", "rustix", "tokio"] {
        assert!(!crates.iter().any(|one| one == name), "{name}");
    }
}

#[test]
fn no_program_sends_bare_commands() {
    for program in [
        "cairn-initiator-cli",
        "cairn-fio",
        "cairn-bench",
        "cairn-attach",
    ] {
        let output = Command::new(env!("CARGO"))
            .args([
                "tree",
                "--locked",
                "--edges",
                "normal,features",
                "--prefix",
                "none",
            ])
            .args(["--package", program])
            .output()
            .expect("cargo runs");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("cairn-initiator"));
        let raw = "cairn-initiator feature \"raw\"";
        assert!(!text.contains(raw), "{program} builds the library with it");
    }
}
