//! `cargo xtask bench against DIR`: comparison with another build of Cairn, measured alternately on
//! this machine.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::beside;
use super::ends::Stage;
use super::item::Item;
use super::{in_turns, name, now, programs, progress};
use crate::results::Better::Higher;
use crate::results::{Machine, Metric, Results, bars, terminal};

const GROUP: &str = "this build and the other";

const RATIO: &str = "of the other";

const SPREAD_DEPTH: &str = "128";

#[derive(clap::Args)]
pub(super) struct Args {
    /// Folder build/release of the other tree, with cairn-target, cairn-initiator and cairn-scale
    #[arg(value_name = "DIR")]
    other: PathBuf,
    /// Number of rounds, in which each program measures each row once
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds of each sample
    #[arg(long, value_name = "S", default_value_t = 0.7, value_parser = super::seconds)]
    seconds: f64,
    /// Name of the results, which is their folder in build/bench [default: the time]
    #[arg(long, value_parser = name)]
    name: Option<String>,
    /// Use the existing programs of this tree without building
    #[arg(long)]
    no_build: bool,
}

type Rate = (String, f64);

#[derive(Deserialize)]
struct Scaled {
    depth: Vec<Spread>,
}

#[derive(Deserialize)]
struct Spread {
    queue_pairs: u16,
    iops: f64,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    for (_, program) in programs::OF_ALL_ENDS {
        ensure!(
            args.other.join(program).exists(),
            "no {program} in {}: in that tree, run `cargo build --release --bin cairn-target --bin \
             cairn-initiator --bin cairn-scale`, and name its folder build/release",
            args.other.display()
        );
    }
    let own = programs::build_all(programs::OF_ALL_ENDS, false, args.no_build)?;
    let run = match &args.name {
        Some(name) => name.clone(),
        None => now()?,
    };
    let folder = programs::results().join(run);
    let items: Vec<Item> = beside::cells().map(Item::Cell).collect();
    let stage = |programs: &Path, folder: &Path| -> Result<Stage> {
        let mut stage = Stage::new(programs.canonicalize()?, folder, None, args.seconds)?;
        stage.prepare(&items)?;
        Ok(stage)
    };
    let (this, other) = (
        stage(&own, &folder)?,
        stage(&args.other, &folder.join("other"))?,
    );
    let results = measure(args.rounds, &this, &other)?;
    results.save(&this.folder)?;
    let ratios: Vec<(String, &Metric)> = results
        .group(GROUP)
        .filter_map(|row| Some((row.name.clone(), row.metric(RATIO)?)))
        .collect();
    bars(&this.folder.join("against.svg"), GROUP, RATIO, &ratios)?;
    this.clear();
    other.clear();
    println!("{}\n{}", terminal(&results), results.machine.summary());
    println!("results in {}", this.folder.display());
    Ok(ExitCode::SUCCESS)
}

fn measure(rounds: u32, this: &Stage, other: &Stage) -> Result<Results> {
    let machine = Machine::here(Path::new(programs::WORKSPACE));
    let mut results = Results::begin(this.name(), machine);
    results.notes = vec![format!(
        "Medians of {rounds} rounds of {} s a row, in turns, each program with its own host. User-space RoCE on \
         the loopback interface, a memory disk. The ratio is that of two samples of one round. The other: {}.",
        this.seconds,
        other.programs.display()
    )];
    let cells: Vec<_> = beside::cells().collect();
    let progress = progress(u64::from(rounds) * (cells.len() as u64 + 1));
    for round in 0..rounds {
        let mut by_both = |sample: &dyn Fn(&Stage) -> Result<Vec<Rate>>| -> Result<()> {
            let (ours, theirs) = in_turns(round, || sample(this), || sample(other))?;
            for ((label, ours), (_, theirs)) in ours.into_iter().zip(theirs) {
                results.record(GROUP, &label, metrics(ours, theirs));
            }
            progress.inc(1);
            Ok(())
        };
        for cell in &cells {
            let sample = |stage: &Stage| {
                let sample = stage.measure(cell).with_context(|| cell.name())?;
                Ok(vec![(cell.name(), sample.report.iops)])
            };
            by_both(&sample)?;
        }
        by_both(&many_queue_pairs)?;
    }
    progress.finish_and_clear();
    results.machine.ended();
    Ok(results)
}

fn metrics(ours: f64, theirs: f64) -> Vec<Metric> {
    vec![
        Metric::once(RATIO, "", Higher, ours / theirs),
        Metric::once("this", "1/s", Higher, ours),
        Metric::once("the other", "1/s", Higher, theirs),
    ]
}

fn many_queue_pairs(stage: &Stage) -> Result<Vec<Rate>> {
    let file = stage.folder.join("scale.json");
    let mut scale = Command::new(stage.programs.join("cairn-scale"));
    scale
        .arg("--target")
        .arg(stage.programs.join("cairn-target"))
        .args(["--only", "depth", "--queue-pairs", "64,256"])
        .args(["--depth", SPREAD_DEPTH])
        .args(["--seconds", &stage.seconds.to_string()])
        .arg("--json")
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let status = scale.status().context("cannot run cairn-scale")?;
    ensure!(status.success(), "{scale:?} ended with {status}");
    let text = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let scaled: Scaled = serde_json::from_slice(&text).context("the figures of cairn-scale")?;
    let rate = |spread: Spread| {
        let label = format!("{SPREAD_DEPTH} reads on {} queue pairs", spread.queue_pairs);
        (label, spread.iops)
    };
    Ok(scaled.depth.into_iter().map(rate).collect())
}
