//! What Cairn itself does for an operation on an image of a Ceph cluster: librbd is one of ours, `librbd.c`,
//! whose operations end at once and move no data.

use std::path::Path;
use std::process::Command;

use super::callgrind::{Cost, Profile};
use super::{FORBIDDEN, release_folder};

/// librados and librbd, as the target opens them.
const LIBRARIES: [&str; 2] = ["librados.so.2", "librbd.so.1"];

/// For each operation: instructions of our crates, about 5 % above what was measured.
const INSTRUCTIONS: f64 = 580.0;

/// Atomic ones: references to image and memory, the look at the image, the lock of the list of what ended.
const LOCKED: f64 = 17.0;

/// Instructions that copy. Those of the data would be 128 for 4 KiB; fewer are those that fill the buffers
/// when the program begins.
const COPIES: f64 = 64.0;

/// Instructions of what allocates or formats, which it does when it begins.
const OTHERS: f64 = 20.0;

/// Bytes and depth: the buffers have the same size.
const ROWS: [(&str, u32, u32); 4] = [
    ("randread", 4 << 10, 32),
    ("randwrite", 4 << 10, 32),
    ("randread", 128 << 10, 4),
    ("randwrite", 128 << 10, 4),
];

/// Long enough for what a program does when it begins to be little beside it.
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

/// Runs the benchmark; its operations, and what was counted.
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

/// The libraries, in a folder of their own.
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
