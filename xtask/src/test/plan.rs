use std::path::Path;

use anyhow::{Context, Result};

use super::lane::Lane;
use super::skips::Skips;
use super::step::Step;
use super::tools::Tools;

const TSHARK_VARIABLE: &str = "CAIRN_TSHARK";
const FIO_VARIABLE: &str = "CAIRN_FIO";
/// Variable that makes a failed FUSE mount an error, set for root.
const FUSE_VARIABLE: &str = "CAIRN_FUSE";

const PROMTOOL_VARIABLE: &str = "CAIRN_PROMTOOL";

const SPDK_VARIABLE: &str = "SPDK_PYTHON";

const SEEDS_VARIABLE: &str = "CAIRN_SEEDS_SHARE";

/// Filter for tests whose seeds are divided between two steps. Tests of planted bugs are excluded:
/// a quarter of their seeds finds each bug.
const SEEDED_TESTS: &str = "(binary(simulation) | (package(cairn-roce-proto) & binary(connections))) \
     & not test(planted)";

const LONG_TESTS: &str = "not (binary(simulation) and package(cairn-tests)) \
     and not binary(faults) and not binary(multipath) and not binary(namespaces) \
     and not binary(scale) and not binary(jobs) and not binary(quick)";

const CEPH_TESTS: &str = "(package(cairn-tests) & binary(ceph)) | (package(cairn-rbd) & binary(images)) \
     | (package(cairn-disk) & test(an_image_of_ceph))";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// Steps of a few minutes, without installing packages.
    Quick,
    /// All unit, property, simulation and end-to-end tests, and the main scenarios.
    Main,
    /// Steps left out by [`Main`](Self::Main).
    Rest,
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
        // A call through cargo would wait for builds of the other lane.
        let arguments = match extent {
            Extent::Main => "vm --keep-going --beside --main",
            Extent::Rest => "vm --keep-going --beside --others",
            _ => "vm --keep-going --beside",
        };
        scenarios.push(own_chore("real kernel", arguments)?);
    }
    if extent.has_main() {
        // The small steps go to the lane that ends first.
        let ends_first = extent == Extent::Main && !scenarios.is_empty();
        let lane = if ends_first {
            &mut scenarios
        } else {
            &mut steps
        };
        lane.extend(small_steps(tools, skips));
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
    let promtool = tools.promtool.as_deref().unwrap_or(Path::new("promtool"));
    let tests = tests
        .with_env(PROMTOOL_VARIABLE, &promtool.to_string_lossy())
        .with_env(TSHARK_VARIABLE, "required")
        .with_env(FIO_VARIABLE, "required")
        .with_env(FUSE_VARIABLE, fuse_demand())
        .with_env(SEEDS_VARIABLE, "first");
    vec![
        Step::cargo("format", "fmt --all --check"),
        skips.note(tests),
    ]
}

fn small_steps(tools: &Tools, skips: &Skips) -> [Step; 2] {
    [
        skips.note(ceph_tests(tools)),
        Step::cargo("doc tests", "test --workspace --doc --locked"),
    ]
}

/// Returns the number of test threads: three per core, since most tests wait for timers.
fn test_threads() -> usize {
    3 * std::thread::available_parallelism().map_or(2, usize::from)
}

fn rest_steps(tools: &Tools, skips: &Skips) -> Result<Vec<Step>> {
    // This test takes many minutes, so it is run by hand.
    let without_the_longest = if tools.nextest {
        ["--filterset", "not test(over_soft_roce_attackers)"]
    } else {
        ["--skip", "over_soft_roce_attackers"]
    };
    let (soft, costs, packages) = if tools.nextest {
        (
            "nextest run --workspace --test end_to_end --test bad_peer_loopback \
             --test no_trace --locked",
            "nextest run --workspace --test costs --run-ignored all --locked \
             --success-output immediate",
            "nextest run --workspace --test released --test package --test no_io \
             --run-ignored all --locked",
        )
    } else {
        (
            "test --workspace --test end_to_end --test bad_peer_loopback --test no_trace \
             --locked --no-fail-fast",
            "test --workspace --test costs --locked -- --include-ignored --nocapture",
            "test --workspace --test released --test package --test no_io --locked \
             --no-fail-fast -- --include-ignored",
        )
    };
    Ok(vec![
        // The first four steps do not use cargo's default output folder, which the other lane uses
        // meanwhile.
        own_chore("dependencies", "dependencies")?,
        skips.note(own_chore("verbs ABI", "abi")?),
        own_chore("msrv", "msrv")?,
        skips.note(own_chore("aarch64", "aarch64")?),
        Step::cargo(
            "clippy",
            "clippy --workspace --all-targets --locked -- -D warnings",
        ),
        Step::cargo(
            "one provider",
            "check -p cairn-initiator --no-default-features --features soft --locked",
        ),
        Step::cargo("documentation", "doc --workspace --no-deps --locked")
            .with_env("RUSTDOCFLAGS", "-D warnings"),
        Step::cargo(
            "crate package",
            "package -p nvme-proto --no-verify --allow-dirty --offline --locked",
        ),
        skips.note(Step::cargo("tests, soft", soft).with_env("CAIRN_TEST_PROVIDER", "soft")),
        seeded_tests(tools),
        Step::cargo("costs", costs).with_arguments(without_the_longest),
        skips.note(spdk_tests(tools)),
        skips.note(Step::cargo("packages", packages)),
        own_chore("soak, short", "soak --short --seconds 40")?
            .with_env(FUSE_VARIABLE, fuse_demand()),
        // Compiling with full optimisation would take minutes.
        own_chore("fuzz", "fuzz --compile-fast --seconds 6")?,
        own_chore("loom", "loom")?,
        own_chore("miri", "miri")?,
        skips.note(own_chore("sanitize, addr.", "sanitize address")?),
        own_chore("sanitize, thr.", "sanitize thread")?,
        own_chore(
            "benchmark",
            "bench --debug --out build/bench/smoke --rw randread,mixed --depth 4 --repeat 1 \
             --seconds 0.3",
        )?,
    ])
}

fn seeded_tests(tools: &Tools) -> Step {
    const NAME: &str = "more seeds";
    let step = if tools.nextest {
        Step::cargo(NAME, "nextest run --workspace --locked").with_arguments([
            "--filterset",
            SEEDED_TESTS,
            "--status-level",
            "slow",
        ])
    } else {
        Step::cargo(
            NAME,
            "test --workspace --test simulation --test connections --locked --no-fail-fast",
        )
    };
    step.with_env(SEEDS_VARIABLE, "rest")
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
        None => step,
    }
}

fn own_chore(name: &'static str, arguments: &str) -> Result<Step> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    Ok(Step::program(name, program, arguments))
}

fn fuse_demand() -> &'static str {
    let root = rustix::process::geteuid().is_root();
    if root && Path::new("/dev/fuse").exists() {
        "required"
    } else {
        "wanted"
    }
}
