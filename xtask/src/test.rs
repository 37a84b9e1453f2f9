//! `cargo xtask test`: all that must hold before a change is good.
//!
//! One step after the other, each a program that says so by its exit code. A
//! step that fails does not keep the next ones from running: one run shows
//! everything that is wrong.

pub(crate) mod step;
mod tally;
mod tools;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;

use step::{Outcome, Step};
use tally::Tally;
use tools::Tools;

/// Set for tests that need tshark, which is installed: that it is not found is a failure then.
const TSHARK_VARIABLE: &str = "CAIRN_TSHARK";
/// The same of fio.
const FIO_VARIABLE: &str = "CAIRN_FIO";

/// The same of disks under fault, which only root can mount.
const FUSE_VARIABLE: &str = "CAIRN_FUSE";

/// What the command line asks for.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Leave out the scenarios that run in a virtual machine
    #[arg(long)]
    no_vm: bool,
}

/// Runs every step, and sums up.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let tools = Tools::prepare()?;
    let mut report = Report::default();
    for step in steps(&tools, args) {
        let name = step.name;
        println!("\n==> {name}: {}", step.command_line());
        let started = Instant::now();
        let outcome = step.run()?;
        report.add(name, outcome, started);
    }
    report.print();
    Ok(report.exit_code())
}

/// The cheap ones first.
fn steps(tools: &Tools, args: &Args) -> Vec<Step> {
    let mut steps = vec![
        Step::cargo("format", "fmt --all --check"),
        Step::cargo(
            "clippy",
            "clippy --workspace --all-targets --locked -- -D warnings",
        ),
        Step::program(
            "dependencies",
            &tools.cargo_deny,
            "--locked --workspace check bans licenses sources",
        ),
    ];
    if tools.nextest {
        steps.push(
            Step::cargo("tests", "nextest run --workspace --locked")
                .with_env(TSHARK_VARIABLE, "required")
                .with_env(FIO_VARIABLE, "required")
                .with_env(FUSE_VARIABLE, fuse_demand()),
        );
        steps.push(
            Step::cargo(
                "tests, soft",
                "nextest run -p cairn-tests --test end_to_end --test bad_peer_loopback \
                 --test no_trace --locked",
            )
            .with_env("CAIRN_TEST_PROVIDER", "soft"),
        );
        steps.push(Step::cargo(
            "costs",
            "nextest run -p cairn-tests --test costs --run-ignored all --locked \
             --success-output immediate",
        ));
        steps.push(Step::cargo("doc tests", "test --workspace --doc --locked"));
    } else {
        steps.push(
            Step::cargo("tests", "test --workspace --locked --no-fail-fast")
                .with_env(TSHARK_VARIABLE, "required")
                .with_env(FIO_VARIABLE, "required")
                .with_env(FUSE_VARIABLE, fuse_demand()),
        );
        steps.push(Step::cargo(
            "costs",
            "test -p cairn-tests --test costs --locked -- --include-ignored --nocapture",
        ));
    }
    steps.push(
        Step::cargo("documentation", "doc --workspace --no-deps --locked")
            .with_env("RUSTDOCFLAGS", "-D warnings"),
    );
    // A few rounds of what `cargo xtask soak` does for hours.
    steps.push(
        Step::cargo("soak, short", "xtask soak --short --seconds 40")
            .with_env(FUSE_VARIABLE, fuse_demand()),
    );
    // The measuring works, whatever it measures: it checks its results itself.
    steps.push(Step::cargo(
        "benchmark",
        "xtask bench --debug --out build/bench/smoke --rw randread,mixed --depth 4 --repeat 1 \
         --seconds 0.3",
    ));
    if !args.no_vm {
        steps.push(Step::cargo("real kernel", "xtask vm --keep-going"));
    }
    steps
}

/// What [`FUSE_VARIABLE`] is set to: required where it can be had.
fn fuse_demand() -> &'static str {
    let root = rustix::process::geteuid().is_root();
    if root && std::path::Path::new("/dev/fuse").exists() {
        "required"
    } else {
        "wanted"
    }
}

/// The steps so far: what came of each, and how long it took.
#[derive(Default)]
struct Report {
    rows: Vec<(&'static str, Outcome, f32)>,
}

impl Report {
    fn add(&mut self, name: &'static str, outcome: Outcome, started: Instant) {
        self.rows
            .push((name, outcome, started.elapsed().as_secs_f32()));
    }

    /// The sum on a line of its own, last. A step that counts nothing counts as one.
    fn print(&self) {
        let mut sum = Tally::default();
        println!("\n      step           seconds   tests");
        for (name, outcome, seconds) in &self.rows {
            let word = if outcome.success { "ok  " } else { "FAIL" };
            let tests = match outcome.tally {
                Tally {
                    passed: 0,
                    failed: 0,
                } => String::new(),
                tally => tally.to_string(),
            };
            println!("{word}  {name:<14} {seconds:>7.1}   {tests}");
            sum = sum + outcome.counted();
        }
        println!("\n{sum}");
    }

    fn exit_code(&self) -> ExitCode {
        if self.rows.iter().all(|(_, outcome, _)| outcome.success) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}
