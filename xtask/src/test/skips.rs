use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::lane::Done;
use super::plan::Extent;
use super::step::Step;
use crate::vm::tree::Tree;

const FILE_VARIABLE: &str = "CAIRN_SKIPS";

#[derive(Clone, Copy)]
enum Reason {
    RunsElsewhere(&'static str),
    Lacks(&'static str),
}

use Reason::{Lacks, RunsElsewhere};

/// Allowed skips: a part of the test's name or record, and the reason.
const ALLOWED: [(&str, Reason); 34] = [
    (
        "cairn-tests::ceph",
        RunsElsewhere("`cargo xtask test` runs them in a step of their own, and installs Ceph"),
    ),
    (
        "packages_have_what_they_promise",
        RunsElsewhere("`cargo xtask test --all` runs it"),
    ),
    (
        "links_without_std",
        RunsElsewhere("`cargo xtask test --all` runs it"),
    ),
    (
        "packages_run_where_they_say",
        RunsElsewhere("`cargo xtask test --all` runs it"),
    ),
    (
        "a real Ceph",
        RunsElsewhere("`cargo xtask test` runs them in a step of their own, and installs Ceph"),
    ),
    (
        "ceph-mon ceph-osd ceph-common",
        Lacks("machines without Ceph, which `cargo xtask test` installs where it can"),
    ),
    (
        "a_command_costs_what_it_may",
        RunsElsewhere("`cargo xtask test --all` runs it"),
    ),
    (
        "an_image_costs_what_it_may",
        RunsElsewhere("`cargo xtask test --all` runs it"),
    ),
    (
        "both_ends_cost_what_they_may",
        RunsElsewhere("`cargo xtask test --all` runs it"),
    ),
    (
        "none_of_a_million_increments_is_lost",
        RunsElsewhere("nextest with `--run-ignored all` runs it, for minutes"),
    ),
    (
        "the_order_of_changes_costs_what_it_may",
        RunsElsewhere("`cargo xtask test --all` runs it"),
    ),
    (
        "attackers_slow_other_hosts",
        RunsElsewhere("`cargo xtask test --all` runs it"),
    ),
    (
        "over_soft_roce_attackers",
        RunsElsewhere(
            "it counts for many minutes: by hand, after a change of the account of addresses",
        ),
    ),
    (
        "drives_past_the_block_layer",
        RunsElsewhere("`cargo xtask vm passthrough` runs it, on drives that it may erase"),
    ),
    (
        "erases the drives",
        RunsElsewhere("`cargo xtask vm passthrough` runs it, on drives that it may erase"),
    ),
    (
        "connects::connects",
        RunsElsewhere("`cargo xtask soak` runs it, and `test --all` a short one"),
    ),
    (
        "soak rounds",
        RunsElsewhere("`cargo xtask soak` runs them, and `test --all` a few"),
    ),
    (
        "rounds, it takes as long as it is given",
        RunsElsewhere("`cargo xtask soak` runs them, and `test --all` a few"),
    ),
    (
        "SPDK_PYTHON names no folder",
        Lacks(
            "machines without pip or a way to the registry of Python packages; recorded exchanges remain",
        ),
    ),
    (
        "spdks_own_",
        RunsElsewhere("`cargo xtask test --all` runs them, and fetches SPDK's client"),
    ),
    (
        "vm packaged: SPDK's client",
        Lacks(
            "machines without pip or a way to the registry of Python packages; recorded requests are sent",
        ),
    ),
    (
        "msrv: rustup cannot install",
        Lacks("machines without rustup, or without a way to its server"),
    ),
    (
        "fuzz: nightly Rust or cargo-fuzz cannot be installed",
        Lacks("machines without rustup, or without a way to its server and the registry of crates"),
    ),
    (
        "miri: nightly Rust or Miri cannot be installed",
        Lacks("machines without rustup, or without a way to its server"),
    ),
    (
        "nightly Rust cannot be installed",
        Lacks("machines without rustup, or without a way to its server"),
    ),
    (
        "sanitize address: the engine of fio",
        Lacks("machines without fio, or without gcc's sanitizers"),
    ),
    (
        ", Miri ",
        RunsElsewhere("only `cargo xtask miri` leaves it out"),
    ),
    (
        "dependencies: the advisories of RustSec",
        Lacks("machines without a way to github.com; CI has one"),
    ),
    (
        "aarch64: the machine cannot build for it",
        Lacks("machines where apt and rustup cannot install a compiler for aarch64, and qemu-user"),
    ),
    (
        "abi: the layouts cannot be compared",
        Lacks("other processors, and machines without cc or apt's rdma-core headers"),
    ),
    (
        "packages: ",
        Lacks("machines without dpkg, mmdebstrap, systemd-analyze, root or a mirror"),
    ),
    (
        "promtool is not installed",
        Lacks("machines where apt cannot download Debian's package prometheus"),
    ),
    (
        "this kernel has no VLAN interfaces (8021q)",
        Lacks("machines whose kernel has no VLANs; vm soft-vlan shows them"),
    ),
    (
        "panics::tests::child_of_shared_state",
        RunsElsewhere("it ends its process; another test runs it"),
    ),
];

pub(super) struct Skipped {
    pub(super) recorded: u32,
    pub(super) unknown: u32,
    pub(super) untested: Vec<String>,
}

pub(super) struct Skips {
    path: PathBuf,
}

impl Skips {
    pub(super) fn collect() -> Result<Self> {
        let path = Tree::locate()?.skips()?;
        fs::write(&path, "").with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path })
    }

    pub(super) fn note(&self, step: Step) -> Step {
        step.with_env(FILE_VARIABLE, &self.path.to_string_lossy())
    }

    pub(super) fn report(&self, done: &[Done], extent: Extent) -> Result<Skipped> {
        let notes = fs::read_to_string(&self.path)
            .with_context(|| format!("cannot read {}", self.path.display()))?;
        let mut recorded: Vec<String> = notes.lines().map(|line| line.replace('\t', " ")).collect();
        recorded.sort();
        recorded.dedup();
        let not_run = done.iter().flat_map(|step| &step.outcome.skipped);
        let mut unknown = 0;
        let mut untested = Vec::new();
        for skip in recorded.iter().chain(not_run) {
            match ALLOWED.iter().find(|(part, _)| skip.contains(part)) {
                Some((_, RunsElsewhere(what))) => println!("skipped: {skip} [{what}]"),
                Some((_, Lacks(what))) => untested.push(format!("{skip} [{what}]")),
                None if extent == Extent::Quick => println!("skipped: {skip}"),
                None => {
                    unknown += 1;
                    println!("failed: skipped, and must not be: {skip}");
                }
            }
        }
        if unknown > 0 {
            println!(
                "{unknown} tests did not run. Install what they lack, or add them with a reason \
                 to ALLOWED in xtask/src/test/skips.rs"
            );
        }
        Ok(Skipped {
            recorded: recorded.len() as u32,
            unknown,
            untested,
        })
    }
}

/// Returns the skipped test in a line: `SKIP [ ] BINARY TEST` (nextest) or
/// `test NAME ... ignored, REASON` (cargo test).
pub(super) fn of_line(line: &str) -> Option<String> {
    let line = line.trim();
    if let Some(rest) = line.strip_prefix("SKIP [") {
        let test = rest.split_once(']')?.1;
        return Some(test.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    let test = line.strip_prefix("test ")?;
    let (name, reason) = test.split_once(" ... ignored")?;
    Some(format!("{name}{reason}"))
}

#[cfg(test)]
#[path = "../../tests/common/mod.rs"]
mod sources;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn name_of(after: &str) -> &str {
        let function = after.split("fn ").nth(1).unwrap();
        function.split('(').next().unwrap()
    }

    #[test]
    fn each_ignored_test_may_be_skipped() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let attribute = concat!("#[", "ignore");
        let (mut unknown, mut seen) = (Vec::new(), 0);
        for file in sources::rust_files(&root) {
            let text = fs::read_to_string(&file).unwrap();
            let path = file.strip_prefix(&root).unwrap().to_string_lossy();
            let of_processes = path.strip_prefix("tests/tests/");
            let binary = of_processes.and_then(|rest| rest.split('/').next());
            for after in text.split(attribute).skip(1) {
                let name = name_of(after);
                let line = format!("cairn-tests::{} {name}", binary.unwrap_or(""));
                let allows = |part: &str| line.contains(part) || part.ends_with(name);
                seen += 1;
                if !ALLOWED.iter().any(|(part, _)| allows(part)) {
                    unknown.push(format!("{path}: {name}"));
                }
            }
        }
        assert!(seen > 0);
        assert!(unknown.is_empty(), "not in ALLOWED: {unknown:?}");
    }

    /// A skip's reason must contain a probe's error; otherwise, it is only a guess.
    #[test]
    fn each_reason_has_an_observed_value() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let call = concat!("cairn_skips::", "skip(");
        let (mut guesses, mut seen) = (Vec::new(), 0);
        for file in sources::rust_files(&root) {
            let text = fs::read_to_string(&file).unwrap();
            for after in text.split(call).skip(1) {
                let argument = after.split([';', '}']).next().unwrap();
                seen += 1;
                if argument.contains('"') && !argument.contains('{') {
                    guesses.push(format!("{}: {argument}", file.display()));
                }
            }
        }
        assert!(seen > 0);
        assert!(guesses.is_empty(), "{guesses:#?}");
    }

    #[test]
    fn skipped_tests_are_read_from_output() {
        for (line, test) in [
            (
                "        SKIP [         ] ( 3/10) cairn-tests::soak rounds",
                Some("( 3/10) cairn-tests::soak rounds"),
            ),
            ("test a::b ... ignored, too long", Some("a::b, too long")),
            ("test a::b ... ignored", Some("a::b")),
            ("test a::b ... ok", None),
            ("        PASS [   0.1s] cairn-tests::soak rounds", None),
        ] {
            assert_eq!(of_line(line).as_deref(), test, "{line}");
        }
    }
}
