use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, ensure};

use super::programs;
use crate::results::{Comparison, Results};

#[derive(clap::Args)]
pub(super) struct Args {
    /// Earlier run: a name in build/bench, a folder, or a results.json
    before: PathBuf,
    /// Later run
    after: PathBuf,
    /// Show all metrics of each row, not only the first
    #[arg(long)]
    all: bool,
    /// Percent by which two runs of the same build may differ
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0)]
    noise: f64,
    /// Exit with code 1 if a row is worse
    #[arg(long)]
    fail_on_worse: bool,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    ensure!(
        (0.0..100.0).contains(&args.noise),
        "--noise {} is no percentage below 100",
        args.noise
    );
    let (before, after) = (load(&args.before)?, load(&args.after)?);
    println!("before: {}: {}", before.name, before.machine.summary());
    println!("after:  {}: {}\n", after.name, after.machine.summary());
    let comparison = Comparison::new(&before, &after, args.all, args.noise / 100.0);
    print!("{}", comparison.table());
    if before.machine.cpu != after.machine.cpu {
        println!("\nThese are two machines: ratios say little.");
    }
    Ok(match args.fail_on_worse && comparison.is_worse() {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

fn load(run: &Path) -> Result<Results> {
    let named = programs::results().join(run);
    Results::load(if !run.exists() && named.exists() {
        &named
    } else {
        run
    })
}
