//! `cargo xtask bench ceph`: comparison of the Ceph image backend with fio's rbd engine.
//!
//! The two programs alternate on one image of a local cluster with one monitor and one OSD.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use cairn_ceph::{Cluster, POOL};

use super::cell::Workload::{self, RandRead, RandWrite};
use super::{in_turns, name, now, programs, progress};
use crate::fio_report::Report;
use crate::results::Better::{Higher, Lower};
use crate::results::{Machine, Mark, Metric, Results, terminal};
use crate::vm::host;
use crate::vm::tree::create_dir;

const GROUP: &str = "Ceph image";

const RATIO: &str = "of fio";
const REACH: f64 = 0.9;

const IMAGE: &str = "bench";
const IMAGE_MIB: u32 = 512;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Number of rounds, in which each program measures each row once
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds of each sample
    #[arg(long, value_name = "S", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Only rows with this word (4k, 128k, qd32, randread, ...); repeatable
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// Install Ceph with apt if it is missing
    #[arg(long)]
    install: bool,
    /// Name of the results, which is their folder in build/bench [default: the time]
    #[arg(long, value_parser = name)]
    name: Option<String>,
    /// Use Cairn's existing programs without building
    #[arg(long)]
    no_build: bool,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    workload: Workload,
    kib: u32,
    depth: u32,
}

const fn row(workload: Workload, kib: u32, depth: u32) -> Row {
    Row {
        workload,
        kib,
        depth,
    }
}

const ROWS: [Row; 8] = [
    row(RandRead, 4, 1),
    row(RandRead, 4, 32),
    row(RandRead, 4, 128),
    row(RandRead, 128, 8),
    row(RandWrite, 4, 1),
    row(RandWrite, 4, 32),
    row(RandWrite, 4, 128),
    row(RandWrite, 128, 8),
];

impl Row {
    fn name(self) -> String {
        format!("{} {}k qd{}", self.workload, self.kib, self.depth)
    }

    fn is_wanted(self, only: &[String]) -> bool {
        let name = self.name();
        let mut words = only.iter();
        words.all(|word| name.split(' ').any(|part| part == word))
    }
}

struct Stage {
    cluster: Cluster,
    conf: PathBuf,
    programs: PathBuf,
    seconds: u32,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let rows: Vec<Row> = ROWS
        .into_iter()
        .filter(|row| row.is_wanted(&args.only))
        .collect();
    ensure!(
        !rows.is_empty(),
        "--only leaves nothing to measure: the rows have words like 4k, 128k, qd32, randwrite"
    );
    if let Some(missing) = cairn_ceph::missing() {
        ensure!(args.install, "{missing}, or give --install");
        host::require_programs(&host::CEPH)?;
    }
    require_fio()?;
    let programs = programs::build_all(programs::OF_DISKS, false, args.no_build)?;
    let run = match &args.name {
        Some(name) => name.clone(),
        None => now()?,
    };
    let folder = programs::results().join(&run);
    create_dir(&folder)?;
    let scratch = Scratch::new()?;
    let stage = Stage::new(&scratch.0, programs, args.seconds)?;
    let results = measure(args, &rows, &stage, &run)?;
    results.save(&folder)?;
    println!("{}\n{}", terminal(&results), results.machine.summary());
    println!("results in {}", folder.display());
    Ok(ExitCode::SUCCESS)
}

fn require_fio() -> Result<()> {
    let engines = Command::new("fio").arg("--enghelp").output();
    let engines = engines.context("fio is not installed: apt install fio")?;
    let listed = String::from_utf8_lossy(&engines.stdout);
    if listed.lines().any(|line| line.trim() == "rbd") {
        return Ok(());
    }
    bail!("this fio has no rbd engine: Debian's has one");
}

fn measure(args: &Args, rows: &[Row], stage: &Stage, run: &str) -> Result<Results> {
    let machine = Machine::here(Path::new(programs::WORKSPACE));
    let mut results = Results::begin(run, machine);
    results.notes = vec![format!(
        "Medians of {} rounds of {} s a row, in turns, each program with a client of its own, on one image \
         of {IMAGE_MIB} MiB that was written before, without librbd's cache. The ratio is that of two \
         samples of one round. CPU is that of the whole client, from its start to its end, with librbd's \
         threads.",
        args.rounds, args.seconds
    )];
    let progress = progress(u64::from(args.rounds) * rows.len() as u64);
    for round in 0..args.rounds {
        for row in rows {
            let label = row.name();
            progress.set_message(label.clone());
            let ours = || Sample::of(stage.ours(*row)).with_context(|| format!("Cairn, {label}"));
            let fio = || Sample::of(stage.fio(*row)).with_context(|| format!("fio, {label}"));
            let (ours, fio) = in_turns(round, ours, fio)?;
            results.record(GROUP, &label, metrics(&ours, &fio));
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    for row in &mut results.rows {
        row.mark = Some(Mark {
            metric: RATIO.to_owned(),
            low: REACH,
            high: REACH,
            source: "the share of fio's rate that Cairn is to reach".to_owned(),
        });
    }
    results.machine.ended();
    Ok(results)
}

struct Sample {
    report: Report,
    cpu: Duration,
}

impl Sample {
    fn of(mut program: Command) -> Result<Self> {
        let before = cpu_of_children()?;
        let report = programs::report(&mut program)?;
        let cpu = cpu_of_children()?.saturating_sub(before);
        Ok(Self { report, cpu })
    }
}

fn cpu_of_children() -> Result<Duration> {
    const TICK: Duration = Duration::from_millis(10);
    let stat = fs::read_to_string("/proc/self/stat").context("cannot read /proc/self/stat")?;
    let (_, fields) = stat
        .rsplit_once(')')
        .context("no name in /proc/self/stat")?;
    let ticks: Vec<u32> = fields
        .split_whitespace()
        .skip(13)
        .take(2)
        .filter_map(|field| field.parse().ok())
        .collect();
    ensure!(ticks.len() == 2, "/proc/self/stat has no times: {stat}");
    Ok(TICK * ticks.iter().sum())
}

fn metrics(ours: &Sample, fio: &Sample) -> Vec<Metric> {
    let iops = |sample: &Sample| sample.report.iops;
    let us = |ns: f64| ns / 1e3;
    let p50 = |sample: &Sample| us(sample.report.percentiles.p50);
    let p99 = |sample: &Sample| us(sample.report.percentiles.p99);
    let cpu = |sample: &Sample| sample.cpu.as_secs_f64() * 1e6 / sample.report.ios;
    vec![
        Metric::once(RATIO, "", Higher, iops(ours) / iops(fio)),
        Metric::once("Cairn", "1/s", Higher, iops(ours)),
        Metric::once("fio", "1/s", Higher, iops(fio)),
        Metric::once("Cairn p50", "us", Lower, p50(ours)),
        Metric::once("fio p50", "us", Lower, p50(fio)),
        Metric::once("Cairn p99", "us", Lower, p99(ours)),
        Metric::once("fio p99", "us", Lower, p99(fio)),
        Metric::once("Cairn CPU", "us", Lower, cpu(ours)),
        Metric::once("fio CPU", "us", Lower, cpu(fio)),
    ]
}

impl Stage {
    fn new(folder: &Path, programs: PathBuf, seconds: u32) -> Result<Self> {
        let cluster = Cluster::start(folder).context("Ceph does not start")?;
        cluster.image(IMAGE, &format!("{IMAGE_MIB}M"))?;
        let conf = folder.join("client.conf");
        let text = fs::read_to_string(cluster.conf())?;
        // With librbd's cache, writes would be acknowledged before an OSD has them.
        let client = "[client]\nrbd cache = false\nrbd disable zero copy writes = true\n";
        fs::write(&conf, format!("{text}{client}"))?;
        let stage = Self {
            cluster,
            conf,
            programs,
            seconds,
        };
        stage.fill().context("the image cannot be written")?;
        Ok(stage)
    }

    fn fill(&self) -> Result<()> {
        let mut fio = self.fio_on_image("write", 1024, 8);
        fio.arg(format!("--size={IMAGE_MIB}m"));
        programs::report(&mut fio).map(drop)
    }

    fn ours(&self, row: Row) -> Command {
        let mut command = Command::new(self.programs.join("examples/cairn-bench-disk"));
        command
            .arg(format!("--image={POOL}/{IMAGE}"))
            .arg("--conf")
            .arg(self.cluster.conf())
            .arg(format!("--rw={}", row.workload))
            .arg(format!("--bs={}", row.kib << 10))
            .arg(format!("--iodepth={}", row.depth))
            .arg(format!("--runtime-ms={}", self.seconds * 1000));
        command
    }

    fn fio(&self, row: Row) -> Command {
        let mut command = self.fio_on_image(&row.workload.to_string(), row.kib, row.depth);
        command.args(["--norandommap", "--time_based"]);
        command.arg(format!("--runtime={}", self.seconds));
        command
    }

    fn fio_on_image(&self, rw: &str, kib: u32, depth: u32) -> Command {
        let mut command = Command::new("fio");
        command
            .env("CEPH_CONF", &self.conf)
            .env("CEPH_ARGS", "")
            .args(["--name=image", "--ioengine=rbd", "--clientname=admin"])
            .arg(format!("--pool={POOL}"))
            .arg(format!("--rbdname={IMAGE}"))
            .args(["--thread", "--output-format=json"])
            .arg(format!("--rw={rw}"))
            .arg(format!("--bs={kib}k"))
            .arg(format!("--iodepth={depth}"));
        command
    }
}

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("cairn-ceph-{}", std::process::id()));
        create_dir(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_chosen_by_their_words() {
        let chosen = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            let rows = ROWS.into_iter().filter(|row| row.is_wanted(&words));
            rows.map(Row::name).collect::<Vec<_>>()
        };
        assert_eq!(chosen(&[]).len(), ROWS.len());
        assert_eq!(
            chosen(&["4k", "qd1"]),
            ["randread 4k qd1", "randwrite 4k qd1"]
        );
        assert!(chosen(&["4"]).is_empty());
    }
}
