//! `cargo xtask test`: checks for every change. All steps run, even after a failure.

mod failures;
mod lane;
mod plan;
mod skips;
pub(crate) mod step;
mod tally;
mod tools;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

use lane::Done;
use plan::Extent;
use skips::Skips;
use tally::Tally;

pub(crate) use tools::check_dependencies;

use crate::times::Times;
use crate::vm::tree::Tree;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Skip the virtual machine, the packages and the long tests: takes a few minutes
    #[arg(long, conflicts_with_all = ["all", "not_again"])]
    quick: bool,
    /// Run every scenario of the virtual machine, and the longer runs
    #[arg(long)]
    all: bool,
    /// With --all: skip the steps that the command without options runs
    #[arg(long, requires = "all")]
    not_again: bool,
    /// Skip the scenarios of the virtual machine
    #[arg(long)]
    no_vm: bool,
}

impl Args {
    fn extent(&self) -> Extent {
        match (self.quick, self.all, self.not_again) {
            (true, ..) => Extent::Quick,
            (_, true, true) => Extent::Rest,
            (_, true, false) => Extent::All,
            _ => Extent::Main,
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let started = Instant::now();
    let extent = args.extent();
    let tools = tools::prepare(extent, !args.no_vm)?;
    let skips = Skips::collect()?;
    let mut times = Times::open(Tree::locate()?.times());
    let plan = plan::lanes(extent, &tools, &skips, !args.no_vm)?;
    let done = lane::run_all(plan, &times)?;
    for step in &done {
        times.set(step.name, step.took);
    }
    times.save();
    let skipped = skips.report(&done, extent)?;
    print_table(&done, skipped.recorded, started.elapsed());
    for skip in &skipped.untested {
        println!("not tested here: {skip}");
    }
    // Long logs are often cut in the middle, so the output ends with the failures.
    for step in done.iter().filter(|step| !step.outcome.success) {
        step.outcome.failures.print(step.name);
    }
    let success = skipped.unknown == 0 && done.iter().all(|step| step.outcome.success);
    Ok(if success {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Prints the table of steps; tests with a recorded skip do not count as passed.
fn print_table(done: &[Done], recorded_skips: u32, took: Duration) {
    let mut sum = Tally::default();
    println!("\n      step            seconds   tests");
    for step in done {
        let word = if step.outcome.success { "ok  " } else { "FAIL" };
        let tests = match step.outcome.tally {
            tally if tally.is_empty() => String::new(),
            tally => tally.to_string(),
        };
        let seconds = step.took.as_secs_f32();
        println!("{word}  {:<15} {seconds:>7.1}   {tests}", step.name);
        sum = sum + step.outcome.counted();
    }
    sum.passed = sum.passed.saturating_sub(recorded_skips);
    sum.skipped += recorded_skips;
    println!(
        "\nIn {} min {:02} s:\n{sum}",
        took.as_secs() / 60,
        took.as_secs() % 60
    );
}
