//! `cargo xtask soak`: random faults for a given time. Runs rounds of `tests/tests/soak`, the test
//! of many connects, and the simulation with more seeds.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::stops;
use crate::test::step::Step;

const SIMULATED: &str = "10000";
const CONNECTS: &str = "70000";
const A_YEAR: u64 = 365 * 24 * 60 * 60;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Hours in which rounds start
    #[arg(long, default_value_t = 0)]
    hours: u64,
    /// Additional minutes
    #[arg(long, default_value_t = 0)]
    minutes: u64,
    /// Additional seconds
    #[arg(long, default_value_t = 0)]
    seconds: u64,
    /// Maximum number of rounds
    #[arg(long)]
    rounds: Option<u64>,
    /// Seed of the first round; each later round uses the next number
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Stop and continue random processes of the rounds, including hosts
    #[arg(long)]
    stops: bool,
    /// Only the rounds, with few connects and without the simulation
    #[arg(long)]
    short: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let seconds = (args.hours * 60 + args.minutes) * 60 + args.seconds;
    let seconds = match (seconds, args.rounds) {
        (0, None) => bail!("for how long? --hours, --minutes, --seconds or --rounds says it"),
        (0, Some(_)) => A_YEAR,
        (seconds, _) => seconds,
    };
    let mut success = true;
    for step in steps(args, seconds)? {
        println!("\n==> {}: {}", step.name, step.command_line());
        success &= step.run("")?.success;
    }
    Ok(if success {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn steps(args: &Args, seconds: u64) -> Result<Vec<Step>> {
    let soak = |name, test: &str| {
        let arguments = format!(
            "test --workspace --test soak --locked -- --ignored --exact --nocapture {test}"
        );
        Step::cargo(name, &arguments)
    };
    let mut rounds = soak("rounds", "rounds")
        .with_env("CAIRN_SOAK_SECONDS", &seconds.to_string())
        .with_env("CAIRN_SOAK_SEED", &args.seed.to_string());
    if let Some(limit) = args.rounds {
        rounds = rounds.with_env("CAIRN_SOAK_ROUNDS", &limit.to_string());
    }
    if args.stops {
        rounds = stops::with_runner(rounds, "--tree")?;
    }
    if args.rounds == Some(1) {
        return Ok(vec![rounds]);
    }
    let connects = soak("connects", "connects::connects");
    if args.short {
        return Ok(vec![rounds, connects]);
    }
    Ok(vec![
        rounds,
        connects.with_env("CAIRN_SOAK_CONNECTS", CONNECTS),
        Step::cargo(
            "simulation",
            "test -p cairn-tests --test simulation --locked",
        )
        .with_env("CAIRN_SEEDS", SIMULATED),
    ])
}
