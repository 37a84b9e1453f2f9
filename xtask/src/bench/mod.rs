//! `cargo xtask bench`: performance of target and host on this machine (docs/performance.md).
//!
//! Each round measures all cells, so that a slow phase of the machine affects all cells equally.

mod against;
mod beside;
mod cell;
mod ceph;
mod compare;
mod counters;
mod cpu_time;
mod disk;
mod ends;
mod flame;
mod item;
mod link;
mod matrix;
mod neighbour;
mod pictures;
mod programs;
mod sample;
mod scale;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};

use crate::results::{Machine, Marks, Metric, Results, terminal};
use ends::Stage;
use item::Item;
use matrix::Choice;

const MARKS: &str = include_str!("../../../benches/marks.json");

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    other: Option<Other>,
    #[command(flatten)]
    choice: Choice,
    /// Print the cells without measuring
    #[arg(long)]
    list: bool,
    /// Samples of each cell [default: 7, with --quick 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: Option<u32>,
    /// Seconds of each sample [default: 0.7, with --quick 0.4]
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// Name of the results, which is their folder in build/bench [default: the time]
    #[arg(long, value_parser = name)]
    name: Option<String>,
    /// Folder of the results, instead of one in build/bench
    #[arg(long, value_name = "FOLDER", conflicts_with = "name")]
    out: Option<PathBuf>,
    /// Address of the RDMA device, for --provider verbs
    #[arg(long)]
    address: Option<IpAddr>,
    /// Existing file or device for the rows of "disk", instead of a new file; its data is destroyed
    #[arg(long, value_name = "PATH")]
    disk: Option<PathBuf>,
    /// Measure programs without optimisation, to try the benchmark itself
    #[arg(long)]
    debug: bool,
    /// Use the existing programs without building
    #[arg(long)]
    no_build: bool,
}

#[derive(Subcommand)]
enum Other {
    /// Alternate between this build and another build of Cairn, to find slower rows
    Against(against::Args),
    /// Alternate between Cairn and SPDK's NVMe/TCP target: ratios and goals
    Beside(beside::Args),
    /// Alternate between Cairn and fio's rbd engine on an image of a Ceph cluster
    Ceph(ceph::Args),
    /// Compare two runs: ratios, their bounds, and the noise
    Compare(compare::Args),
    /// Measure the cost of queue pairs, controllers and idle hosts
    Scale(scale::Args),
    /// Draw a flame graph of the target's reactor (requires perf)
    Flame(flame::Args),
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.other {
        Some(Other::Against(against)) => against::run(against),
        Some(Other::Beside(beside)) => beside::run(beside),
        Some(Other::Ceph(ceph)) => ceph::run(ceph),
        Some(Other::Compare(compare)) => compare::run(compare),
        Some(Other::Scale(scale)) => scale::run(scale),
        Some(Other::Flame(flame)) => flame::run(flame),
        None => args.run(),
    }
}

impl Args {
    fn run(&self) -> Result<ExitCode> {
        let mut items = self.choice.items()?;
        if self.list {
            for item in &items {
                println!("{}", item.label());
            }
            return Ok(ExitCode::SUCCESS);
        }
        for cell in items.iter().filter_map(Item::cell) {
            ends::check_device(cell.provider, Path::new("/sys"))?;
        }
        if !programs::has_fio() {
            items.retain(|item| !matches!(item, Item::Disk(_)));
            ensure!(!items.is_empty(), "fio is not installed: apt install fio");
            eprintln!("without fio (apt install fio), the rows of \"disk\" are left out");
        }
        let programs = programs::build(&items, self.debug, self.no_build)?;
        let mut stage = self.stage(programs)?;
        stage.prepare(&items)?;
        let results = self.measure(&items, &stage)?;
        results.save(&stage.folder)?;
        pictures::draw(&results, &items, &stage.folder)?;
        stage.clear();
        check_complete(&stage.folder, &items, self.repeat())?;
        println!("{}\n{}", terminal(&results), results.machine.summary());
        println!("results in {}", stage.folder.display());
        Ok(ExitCode::SUCCESS)
    }

    fn measure(&self, items: &[Item], stage: &Stage) -> Result<Results> {
        let machine = Machine::here(Path::new(programs::WORKSPACE));
        let mut results = Results::begin(stage.name(), machine);
        results.notes = self.notes(stage);
        let total = u64::from(self.repeat()) * items.len() as u64;
        let progress = progress(total);
        for _turn in 0..self.repeat() {
            for item in items {
                progress.set_message(item.label());
                for (name, sample) in sample(item, stage).with_context(|| item.label())? {
                    results.record(&item.group(), &name, sample);
                }
                progress.inc(1);
            }
        }
        progress.finish_and_clear();
        Marks::parse(MARKS)
            .context("benches/marks.json")?
            .put_on(&mut results);
        results.machine.ended();
        Ok(results)
    }

    fn notes(&self, stage: &Stage) -> Vec<String> {
        let mut notes = vec![format!(
            "Medians of {} samples of {} s, taken in turns; target and host started anew for \
             each, the target's reactor on core {}, the host on core {}. CPU is processor time \
             of all threads; sent and received are packets of the target; disturbed is the time \
             that the target waited for a processor, of the sample's: figures with more than a \
             few percent say more about the machine than about Cairn.",
            self.repeat(),
            stage.seconds,
            stage.cores.0,
            stage.cores.1
        )];
        if stage.cores.0 == stage.cores.1 {
            notes.push("Both ends shared the only core there is.".to_owned());
        }
        if self.debug {
            notes.push("The programs were built without optimisation.".to_owned());
        }
        notes
    }

    fn stage(&self, programs: PathBuf) -> Result<Stage> {
        let folder = match (&self.out, &self.name) {
            (Some(folder), _) => folder.clone(),
            (None, Some(name)) => programs::results().join(name),
            (None, None) => programs::results().join(now()?),
        };
        let usual = if self.choice.quick { 0.4 } else { 0.7 };
        let mut stage = Stage::new(
            programs,
            &folder,
            self.address,
            self.seconds.unwrap_or(usual),
        )?;
        stage.own_disk.clone_from(&self.disk);
        Ok(stage)
    }

    fn repeat(&self) -> u32 {
        self.repeat.unwrap_or(if self.choice.quick { 5 } else { 7 })
    }
}

fn sample(item: &Item, stage: &Stage) -> Result<Vec<(String, Vec<Metric>)>> {
    Ok(match item {
        Item::Cell(cell) => vec![(item.name(), stage.measure(cell)?.metrics())],
        Item::Disk(row) => {
            vec![(item.name(), row.measure(stage)?)]
        }
        Item::Link => link::measure(&stage.programs, stage.seconds)?,
    })
}

fn progress(samples: u64) -> ProgressBar {
    let template = "[{bar:30}] {pos}/{len}, {eta} left  {wide_msg}";
    let style = ProgressStyle::with_template(template).expect("the template is well-formed");
    ProgressBar::new(samples).with_style(style.progress_chars("=> "))
}

fn check_complete(folder: &Path, items: &[Item], repeat: u32) -> Result<()> {
    let results = Results::load(folder)?;
    for item in items {
        let group = item.group();
        let mut rows = results.group(&group);
        let found = rows.any(|row| *item == Item::Link || row.name == item.name());
        ensure!(found, "{} is missing in the results", item.label());
    }
    for row in &results.rows {
        for metric in &row.metrics {
            ensure!(
                metric.samples.len() == repeat as usize
                    && metric.samples.iter().all(|sample| sample.is_finite()),
                "{}: {} has not {repeat} samples of {}",
                row.group,
                row.name,
                metric.name
            );
        }
    }
    Ok(())
}

fn in_turns<A, B>(
    round: u32,
    ours: impl FnOnce() -> Result<A>,
    theirs: impl FnOnce() -> Result<B>,
) -> Result<(A, B)> {
    if round.is_multiple_of(2) {
        let ours = ours()?;
        Ok((ours, theirs()?))
    } else {
        let theirs = theirs()?;
        Ok((ours()?, theirs))
    }
}

fn now() -> Result<String> {
    let output = std::process::Command::new("date")
        .args(["-u", "+%Y-%m-%dT%H%M%SZ"])
        .output()
        .context("cannot run date")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
    if text.is_empty() || text.starts_with('.') || !text.chars().all(fits) {
        return Err("letters, digits, - _ . + alone, please, and no dot in front".to_owned());
    }
    Ok(text.to_owned())
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().unwrap_or(f64::NAN);
    if (0.1..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("give seconds from 0.1 to 3600".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_times_are_checked() {
        assert_eq!(name("before-2"), Ok("before-2".to_owned()));
        for text in ["", "..", "a/b", "a b", ".hidden"] {
            assert!(name(text).is_err(), "{text}");
        }
        assert_eq!(seconds("0.3"), Ok(0.3));
        for text in ["", "0", "-1", "x", "NaN", "1e9"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_marks_are_of_cells_that_are_measured() {
        let mut results = Results::begin("marks", Machine::default());
        for item in Choice::default().items().unwrap() {
            results.record(&item.group(), &item.name(), Vec::new());
        }
        let marks = Marks::parse(MARKS).unwrap();
        marks.put_on(&mut results);
        let marked = results.rows.iter().filter(|row| row.mark.is_some());
        assert_eq!(marked.count(), marks.len());
    }
}
