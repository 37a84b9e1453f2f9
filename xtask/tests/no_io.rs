//! nvme-proto, nvme-auth and cairn-roce-proto must need neither `std` nor an operating system.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Symbols that `core` and `alloc` always require: memory functions and the unwinder, which is
/// never called, because panics abort.
const ALLOWED: [&str; 8] = [
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "bcmp",
    "strlen",
    "rust_eh_personality",
    "_Unwind_Resume",
];

#[test]
#[ignore = "it builds three crates once more: cargo xtask test --all runs it"]
fn links_without_std_and_calls_nothing_outside() {
    let archive = build_proof();
    let symbols = symbols(&archive);
    let names = |defined| {
        let of_kind = symbols
            .iter()
            .filter(move |symbol| symbol.defined == defined);
        of_kind
            .map(|symbol| symbol.name.as_str())
            .collect::<BTreeSet<_>>()
    };
    let (defined, undefined) = (names(true), names(false));
    for (krate, function) in [
        ("nvme_proto", "IoCommand"),
        ("nvme_auth", "challenged"),
        ("cairn_roce_proto", "handle_packet"),
        ("cairn_roce_proto", "handle_mad"),
    ] {
        let is_there = |s: &&str| s.contains(krate) && s.contains(function);
        assert!(
            defined.iter().any(is_there),
            "the archive has no {function} of {krate}"
        );
    }
    let foreign: Vec<_> = undefined
        .difference(&defined)
        .filter(|symbol| !ALLOWED.contains(symbol))
        .collect();
    assert!(
        foreign.is_empty(),
        "the protocols call what is not in them: {foreign:?}"
    );
}

fn build_proof() -> PathBuf {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR"));
    let proof = ours.join("no-std-proof");
    std::fs::copy(ours.join("../Cargo.lock"), proof.join("Cargo.lock")).expect("a lock file");
    let target_dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-std-proof");
    let output = Command::new(env!("CARGO"))
        .args(["build", "--offline", "--manifest-path"])
        .arg(proof.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target_dir)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    target_dir.join("debug/libno_std_proof.a")
}

struct Symbol {
    name: String,
    defined: bool,
}

fn symbols(archive: &Path) -> Vec<Symbol> {
    let output = Command::new("readelf")
        .args(["--symbols", "--wide"])
        .arg(archive)
        .output()
        .expect("readelf of binutils runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(symbol)
        .collect()
}

fn symbol(line: &str) -> Option<Symbol> {
    let mut words = line.split_whitespace();
    words.next()?.strip_suffix(':')?.parse::<u32>().ok()?;
    let (section, name) = (words.nth(5)?, words.next()?);
    Some(Symbol {
        name: name.into(),
        defined: section != "UND",
    })
}
