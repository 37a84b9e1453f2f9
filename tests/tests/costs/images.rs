//! Cost of an operation on a Ceph image. The stub `librbd.c` replaces librbd.

use std::path::Path;
use std::process::Command;

use super::callgrind::{Cost, Profile};
use super::{FORBIDDEN, release_folder};

const LIBRARIES: [&str; 2] = ["librados.so.2", "librbd.so.1"];

const INSTRUCTIONS: f64 = 580.0;

const LOCKED: f64 = 17.0;

const COPIES: f64 = 64.0;

const OTHERS: f64 = 20.0;

const ROWS: [(&str, u32, u32); 4] = [
    ("randread", 4 << 10, 32),
    ("randwrite", 4 << 10, 32),
    ("randread", 128 << 10, 4),
    ("randwrite", 128 << 10, 4),
];

const RUNTIME_MS: u32 = 1500;

#[test]
#[ignore = "builds for release, and needs valgrind: cargo xtask test runs it"]
fn an_image_costs_what_it_may() {
    let program = release_folder().join("examples/cairn-bench-disk");
    let libraries = compile_libraries();
    let mut faults = Vec::new();
    for (rw, bytes, depth) in ROWS {
        let (operations, profile) = run(&program, libraries.path(), rw, bytes, depth);
        let each = |count: u64| count as f64 / operations;
        let is_ours = |name: &str| name.contains("cairn_disk::") || name.contains("cairn_rbd::");
        let ours: Cost = profile.own(is_ours);
        let copies = profile.own(|name| name.contains("memcpy") || name.contains("memmove"));
        let others = profile.own(|name| FORBIDDEN.iter().any(|part| name.contains(part)));
        let counts = [
            ("instructions", each(ours.instructions), INSTRUCTIONS),
            ("atomic ones", each(ours.locked), LOCKED),
            ("that copy", each(copies.instructions), COPIES),
            ("that allocate or format", each(others.instructions), OTHERS),
        ];
        println!("image, {rw} of {bytes} bytes: {counts:.1?}");
        assert!(
            each(ours.instructions) > 100.0,
            "callgrind has not found our crates"
        );
        let above = counts
            .iter()
            .filter(|(_, measured, bound)| measured > bound);
        faults.extend(above.map(|fault| format!("{rw} of {bytes} bytes: {fault:?}")));
    }
    assert!(
        faults.is_empty(),
        "for each operation:\n{}",
        faults.join("\n")
    );
}

fn run(program: &Path, libraries: &Path, rw: &str, bytes: u32, depth: u32) -> (f64, Profile) {
    let folder = tempfile::tempdir().expect("a folder for what callgrind writes");
    let (counts, conf) = (
        folder.path().join("counts"),
        folder.path().join("ceph.conf"),
    );
    std::fs::write(&conf, "").expect("a configuration");
    let mut valgrind = Command::new("valgrind");
    valgrind
        .env("LD_LIBRARY_PATH", libraries)
        .args(["--quiet", "--tool=callgrind", "--collect-bus=yes"])
        .arg(format!("--callgrind-out-file={}", counts.display()))
        .args(["--compress-strings=no", "--compress-pos=no"])
        .arg(program)
        .args(["--image", "rbd/image", "--conf"])
        .arg(&conf)
        .args(["--rw", rw])
        .args(["--bs", &bytes.to_string()])
        .args(["--iodepth", &depth.to_string()])
        .args(["--runtime-ms", &RUNTIME_MS.to_string()]);
    let output = valgrind
        .output()
        .expect("valgrind, by \"apt-get install valgrind\"");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{valgrind:?}: {stderr}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
    let done = |which: &str| report["jobs"][0][which]["total_ios"].as_f64();
    let operations = done("read").unwrap_or(0.0) + done("write").unwrap_or(0.0);
    let dump = std::fs::read(&counts).expect("what callgrind has counted");
    (operations, Profile::parse(&String::from_utf8_lossy(&dump)))
}

fn compile_libraries() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder for libraries");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/costs/librbd.c");
    for name in LIBRARIES {
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-shared", "-fPIC", "-o"]);
        compiler.arg(folder.path().join(name)).arg(&source);
        let built = compiler.status();
        assert!(built.is_ok_and(|status| status.success()), "{compiler:?}");
    }
    folder
}
