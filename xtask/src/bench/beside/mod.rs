//! `cargo xtask bench beside`: comparison of Cairn over user-space RoCE with SPDK over NVMe/TCP.
//!
//! Both targets are measured alternately on this machine with a memory disk; target and host have
//! one core each.

mod reader;
mod spdk;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use super::cell::Workload::{self, RandRead, RandWrite};
use super::cell::{Backend, Cell, Depth, Provider, QueuePairs, Size};
use super::ends::Stage;
use super::item::Item;
use super::{in_turns, name, now, programs, progress};
use crate::fio_report::Report;
use crate::results::Better::{Higher, Lower};
use crate::results::{Machine, Mark, Metric, Results, bars, terminal};
use spdk::{Job, Spdk};

const GROUP: &str = "beside SPDK NVMe/TCP";

const RATIO: &str = "of SPDK";

#[derive(clap::Args)]
pub(super) struct Args {
    /// SPDK build tree with build/bin/nvmf_tgt and build/bin/spdk_nvme_perf
    #[arg(long, value_name = "DIR")]
    spdk: Option<PathBuf>,
    /// Number of rounds, in which each program measures each row once
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds of each sample
    #[arg(long, value_name = "S", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Only rows with this word (4k, 128k, qd32, randread, ...); repeatable
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// Name of the results, which is their folder in build/bench [default: the time]
    #[arg(long, value_parser = name)]
    name: Option<String>,
    /// Use Cairn's existing programs without building
    #[arg(long)]
    no_build: bool,
}

struct Row {
    cell: Cell,
    reach: f64,
}

impl Row {
    const fn new(workload: Workload, kib: u32, depth: u32, reach: f64) -> Self {
        let cell = Cell {
            provider: Provider::Soft,
            backend: Backend::Mem,
            workload,
            size: Size(kib << 10),
            depth: Depth(depth),
            queue_pairs: QueuePairs(1),
        };
        Self { cell, reach }
    }

    fn job(&self, seconds: u32) -> Job {
        Job {
            rw: self.cell.workload.to_string(),
            bytes: self.cell.size.0,
            depth: self.cell.depth.0,
            seconds,
        }
    }
}

const ROWS: [Row; 8] = [
    Row::new(RandRead, 4, 1, 1.5),
    Row::new(RandRead, 4, 32, 1.3),
    Row::new(RandRead, 4, 127, 1.0),
    Row::new(RandWrite, 4, 1, 1.2),
    Row::new(RandWrite, 4, 32, 1.0),
    Row::new(RandWrite, 4, 127, 0.9),
    Row::new(RandRead, 128, 8, 0.9),
    Row::new(RandWrite, 128, 8, 1.0),
];

pub(super) fn cells() -> impl Iterator<Item = Cell> {
    ROWS.iter().map(|row| row.cell)
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let Some(folder) = &args.spdk else {
        println!("{}", spdk::HOW_TO_BUILD);
        return Ok(ExitCode::FAILURE);
    };
    let spdk = Spdk::find(folder)?;
    let rows: Vec<&Row> = ROWS.iter().filter(|row| args.wants(row)).collect();
    ensure!(
        !rows.is_empty(),
        "--only leaves nothing to measure: the rows have words like 4k, 128k, qd32, randwrite"
    );
    let items: Vec<Item> = rows.iter().map(|row| Item::Cell(row.cell)).collect();
    let built = programs::build(&items, false, args.no_build)?;
    let run = match &args.name {
        Some(name) => name.clone(),
        None => now()?,
    };
    let folder = programs::results().join(run);
    let mut stage = Stage::new(built, &folder, None, args.seconds.into())?;
    stage.prepare(&items)?;
    let results = measure(args, &rows, &stage, &spdk)?;
    results.save(&stage.folder)?;
    draw(&results, &stage)?;
    stage.clear();
    println!("{}\n{}", terminal(&results), results.machine.summary());
    println!("results in {}", stage.folder.display());
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn wants(&self, row: &Row) -> bool {
        let words = row.cell.words();
        self.only.iter().all(|word| words.contains(word))
    }
}

fn measure(args: &Args, rows: &[&Row], stage: &Stage, spdk: &Spdk) -> Result<Results> {
    let machine = Machine::here(std::path::Path::new(programs::WORKSPACE));
    let mut results = Results::begin(stage.name(), machine);
    results.notes = vec![format!(
        "Medians of {} rounds of {} s a row, in turns. Each sample has a target and a host of its own, \
         the target on core {}, the host on core {}, a memory disk that was written before, and the \
         loopback interface. Cairn: user-space RoCE. SPDK ({}): NVMe/TCP and spdk_nvme_perf, both \
         without huge pages. The ratio is that of two samples of one round.",
        args.rounds,
        args.seconds,
        stage.cores.0,
        stage.cores.1,
        spdk.version()
    )];
    let with_reader = args.only.is_empty();
    let steps = rows.len() + usize::from(with_reader);
    let progress = progress(u64::from(args.rounds) * steps as u64);
    for round in 0..args.rounds {
        for row in rows {
            let label = row.cell.name();
            progress.set_message(label.clone());
            let ours = || {
                let sample = stage.measure(&row.cell).map(|sample| sample.report);
                sample.with_context(|| format!("Cairn, {label}"))
            };
            let job = row.job(args.seconds);
            let theirs = || {
                let sample = spdk.measure(&job, stage.cores, &stage.folder);
                sample.with_context(|| format!("SPDK, {label}"))
            };
            let (ours, theirs) = in_turns(round, ours, theirs)?;
            results.record(GROUP, &label, metrics(&ours, &theirs));
            progress.inc(1);
        }
        if with_reader {
            progress.set_message("a reader beside a writer");
            reader::measure(stage, spdk, args.seconds, &mut results)?;
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    put_marks(&mut results);
    reader::put_mark(&mut results);
    results.machine.ended();
    Ok(results)
}

fn metrics(ours: &Report, theirs: &spdk::Sample) -> Vec<Metric> {
    let us = |ns: f64| ns / 1e3;
    vec![
        Metric::once(RATIO, "", Higher, ours.iops / theirs.iops),
        Metric::once("Cairn", "1/s", Higher, ours.iops),
        Metric::once("SPDK", "1/s", Higher, theirs.iops),
        Metric::once("Cairn p50", "us", Lower, us(ours.percentiles.p50)),
        Metric::once("SPDK p50", "us", Lower, theirs.p50_us),
        Metric::once("Cairn p99", "us", Lower, us(ours.percentiles.p99)),
        Metric::once("SPDK p99", "us", Lower, theirs.p99_us),
        Metric::once("Cairn p99.9", "us", Lower, us(ours.percentiles.p999)),
        Metric::once("SPDK p99.9", "us", Lower, theirs.p999_us),
        Metric::once("Cairn max", "us", Lower, us(ours.slowest_ns)),
        Metric::once("SPDK max", "us", Lower, theirs.max_us),
    ]
}

fn put_marks(results: &mut Results) {
    for row in results.rows.iter_mut().filter(|row| row.group == GROUP) {
        let known = ROWS.iter().find(|known| known.cell.name() == row.name);
        row.mark = known.map(|known| Mark {
            metric: RATIO.to_owned(),
            low: known.reach,
            high: known.reach,
            source: "the share of SPDK's rate that Cairn is to reach".to_owned(),
        });
    }
}

fn draw(results: &Results, stage: &Stage) -> Result<()> {
    let rows = results.group(GROUP);
    let ratios: Vec<(String, &Metric)> = rows
        .filter_map(|row| Some((row.name.clone(), row.metric(RATIO)?)))
        .collect();
    bars(&stage.folder.join("beside.svg"), GROUP, RATIO, &ratios)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_its_mark() {
        let mut results = Results::begin("beside", Machine::default());
        for row in &ROWS {
            results.record(GROUP, &row.cell.name(), Vec::new());
        }
        put_marks(&mut results);
        assert_eq!(results.rows.len(), ROWS.len(), "no name is used twice");
        for (row, known) in results.rows.iter().zip(&ROWS) {
            assert_eq!(row.mark.as_ref().unwrap().low, known.reach);
        }
    }
}
