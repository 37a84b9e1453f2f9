//! Which steps there are, and which of them a run has.

use anyhow::{Context, Result};

use super::lane::Lane;
use super::skips::Skips;
use super::step::Step;
use super::tools::Tools;

/// Set for tests that need tshark, which is installed: a missing tshark is a failure then.
const TSHARK_VARIABLE: &str = "CAIRN_TSHARK";
/// The same of fio.
const FIO_VARIABLE: &str = "CAIRN_FIO";
/// The same of disks under fault, which only root can mount.
const FUSE_VARIABLE: &str = "CAIRN_FUSE";

/// The folder of SPDK's client, for the tests that run it.
const SPDK_VARIABLE: &str = "SPDK_PYTHON";

/// What a quick run leaves out: tests that take more than some seconds each.
const LONG_TESTS: &str = "not (binary(simulation) and package(cairn-tests)) \
     and not binary(faults) and not binary(multipath) and not binary(namespaces) \
     and not binary(scale) and not binary(jobs) and not binary(quick)";

/// The tests that run a Ceph: end to end, and the backends' suite and librbd by themselves. The packages
/// are those of the step "tests", so that nothing is built anew.
const CEPH_TESTS: &str = "(package(cairn-tests) & binary(ceph)) | (package(cairn-rbd) & binary(images)) \
     | (package(cairn-disk) & test(an_image_of_ceph))";

/// How much of it all.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// Without packages, in a few minutes.
    Quick,
    /// Every unit, property, simulation and end-to-end test, and the scenarios that hold the
    /// main promises.
    Main,
    /// What [`Main`](Self::Main) leaves out.
    Rest,
    /// Both.
    All,
}

impl Extent {
    pub(super) fn has_main(self) -> bool {
        matches!(self, Self::Main | Self::All)
    }

    pub(super) fn has_rest(self) -> bool {
        matches!(self, Self::Rest | Self::All)
    }
}

/// The lanes of a run.
pub(super) fn lanes(extent: Extent, tools: &Tools, skips: &Skips, vm: bool) -> Result<Vec<Lane>> {
    let mut steps = Vec::new();
    if extent == Extent::Quick {
        steps.extend(quick_steps(tools, skips));
    }
    if extent.has_main() {
        steps.extend(main_steps(tools, skips));
    }
    if extent.has_rest() {
        steps.extend(rest_steps(tools, skips)?);
    }
    let mut scenarios = Vec::new();
    if vm && extent != Extent::Quick {
        // Not by way of cargo, which would wait for the other lane's builds.
        let arguments = match extent {
            Extent::Main => "vm --keep-going --beside --main",
            Extent::Rest => "vm --keep-going --beside --others",
            _ => "vm --keep-going --beside",
        };
        scenarios.push(own_chore("real kernel", arguments)?);
    }
    Ok(vec![
        Lane {
            name: "vm",
            steps: scenarios,
        },
        Lane {
            name: "tests",
            steps,
        },
    ])
}

fn quick_steps(tools: &Tools, skips: &Skips) -> Vec<Step> {
    let tests = if tools.nextest {
        Step::cargo("tests, quick", "nextest run --workspace --locked").with_arguments([
            "--filterset",
            LONG_TESTS,
            // Tests that a filter leaves out are not worth a line each.
            "--status-level",
            "slow",
        ])
    } else {
        Step::cargo("tests, quick", "test --workspace --lib --bins --locked")
    };
    vec![
        Step::cargo("format", "fmt --all --check"),
        skips.note(tests),
    ]
}

fn main_steps(tools: &Tools, skips: &Skips) -> Vec<Step> {
    let tests = if tools.nextest {
        Step::cargo(
            "tests",
            &format!(
                "nextest run --workspace --locked --status-level skip --test-threads {}",
                test_threads()
            ),
        )
    } else {
        Step::cargo(
            "tests",
            "test --workspace --lib --bins --tests --locked --no-fail-fast",
        )
    };
    let tests = tests
        .with_env(TSHARK_VARIABLE, "required")
        .with_env(FIO_VARIABLE, "required")
        .with_env(FUSE_VARIABLE, fuse_demand());
    vec![
        Step::cargo("format", "fmt --all --check"),
        skips.note(tests),
        skips.note(ceph_tests(tools)),
        Step::cargo("doc tests", "test --workspace --doc --locked"),
    ]
}

/// One more than there are cores: many tests wait for timers most of their time.
fn test_threads() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from) + 1
}

fn rest_steps(tools: &Tools, skips: &Skips) -> Result<Vec<Step>> {
    // These are counted for many minutes: by hand.
    let without_the_longest = if tools.nextest {
        ["--filterset", "not test(over_soft_roce_attackers)"]
    } else {
        ["--skip", "over_soft_roce_attackers"]
    };
    // Of the workspace, not of a package: dependencies then have the features that the step
    // "tests" has built them with, and are not built anew.
    let (soft, costs, packages) = if tools.nextest {
        (
            "nextest run --workspace --test end_to_end --test bad_peer_loopback \
             --test no_trace --locked",
            "nextest run --workspace --test costs --run-ignored all --locked \
             --success-output immediate",
            "nextest run --workspace --test released --run-ignored all --locked",
        )
    } else {
        (
            "test --workspace --test end_to_end --test bad_peer_loopback --test no_trace \
             --locked --no-fail-fast",
            "test --workspace --test costs --locked -- --include-ignored --nocapture",
            "test --workspace --test released --locked -- --include-ignored",
        )
    };
    Ok(vec![
        // First what builds in a folder of its own: the other lane takes its programs from cargo's usual one meanwhile.
        own_chore("dependencies", "dependencies")?,
        own_chore("msrv", "msrv")?,
        Step::cargo(
            "clippy",
            "clippy --workspace --all-targets --locked -- -D warnings",
        ),
        Step::cargo("documentation", "doc --workspace --no-deps --locked")
            .with_env("RUSTDOCFLAGS", "-D warnings"),
        skips.note(Step::cargo("tests, soft", soft).with_env("CAIRN_TEST_PROVIDER", "soft")),
        Step::cargo("costs", costs).with_arguments(without_the_longest),
        skips.note(spdk_tests(tools)),
        skips.note(Step::cargo("packages", packages)),
        // A few rounds of what `cargo xtask soak` does for hours.
        own_chore("soak, short", "soak --short --seconds 40")?
            .with_env(FUSE_VARIABLE, fuse_demand()),
        // Half a minute for each target. With all optimisations it compiles for minutes more.
        own_chore("fuzz", "fuzz --compile-fast")?,
        own_chore("loom", "loom")?,
        own_chore("miri", "miri")?,
        skips.note(own_chore("sanitize, addr.", "sanitize address")?),
        own_chore("sanitize, thr.", "sanitize thread")?,
        // The measuring works, whatever it measures: it checks its results itself.
        own_chore(
            "benchmark",
            "bench --debug --out build/bench/smoke --rw randread,mixed --depth 4 --repeat 1 \
             --seconds 0.3",
        )?,
    ])
}

fn ceph_tests(tools: &Tools) -> Step {
    const NAME: &str = "tests, Ceph";
    if tools.nextest {
        return Step::cargo(
            NAME,
            "nextest run --workspace --run-ignored all --locked --test-threads 2",
        )
        .with_arguments(["--filterset", CEPH_TESTS]);
    }
    // Parts of the names of those tests.
    Step::cargo(
        NAME,
        "test --workspace --lib --test ceph --test images --locked --no-fail-fast -- \
         --include-ignored an_image no_write_is_lost what_an_administrator",
    )
}

fn spdk_tests(tools: &Tools) -> Step {
    const NAME: &str = "tests, SPDK";
    let step = if tools.nextest {
        Step::cargo(
            NAME,
            "nextest run --workspace --test steering --run-ignored only --locked",
        )
    } else {
        Step::cargo(
            NAME,
            "test --workspace --test steering --locked -- --ignored",
        )
    };
    match &tools.spdk_client {
        Some(folder) => step.with_env(SPDK_VARIABLE, &folder.to_string_lossy()),
        // Each of them records a skip.
        None => step,
    }
}

/// Another of this program's chores.
fn own_chore(name: &'static str, arguments: &str) -> Result<Step> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    Ok(Step::program(name, program, arguments))
}

/// What [`FUSE_VARIABLE`] is set to: required where it is available.
fn fuse_demand() -> &'static str {
    let root = rustix::process::geteuid().is_root();
    if root && std::path::Path::new("/dev/fuse").exists() {
        "required"
    } else {
        "wanted"
    }
}
