//! `cargo xtask bench`: what target and host do on this machine, in figures.
//!
//! Each cell of a matrix is measured several times, in turns: all cells once,
//! then all again, so that a machine that gets slower for a while does not harm
//! one cell alone. docs/performance.md says how to read what comes out.

mod cell;
mod compare;
mod cpu_time;
mod ends;
mod matrix;
mod pictures;
mod programs;
mod sample;

use std::fs;
use std::io::{IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Subcommand;

use crate::results::{Machine, Marks, Results, terminal};
use crate::vm::tree::create_dir;
use cell::{Backend, Cell};
use ends::Stage;
use matrix::Choice;

/// What others reached.
const MARKS: &str = include_str!("../../../benches/marks.json");

/// What the command line asks for.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    other: Option<Other>,
    #[command(flatten)]
    choice: Choice,
    /// Print the cells, and measure nothing
    #[arg(long)]
    list: bool,
    /// Samples of each cell [default: 7, with --quick 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: Option<u32>,
    /// Seconds of each sample [default: 0.7, with --quick 0.4]
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// What the results are called: their folder in build/bench [default: the time]
    #[arg(long, value_parser = name)]
    name: Option<String>,
    /// The folder of the results, instead of one in build/bench
    #[arg(long, value_name = "FOLDER", conflicts_with = "name")]
    out: Option<PathBuf>,
    /// With --provider verbs: the address of the RDMA device
    #[arg(long)]
    address: Option<IpAddr>,
    /// Measure programs without optimisation: to try out the measuring
    #[arg(long)]
    debug: bool,
    /// Use the programs as they were built last
    #[arg(long)]
    no_build: bool,
}

#[derive(Subcommand)]
enum Other {
    /// Compare two runs: ratios, their bounds, and what is noise
    Compare(compare::Args),
}

/// Runs the chore.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.other {
        Some(Other::Compare(compare)) => compare::run(compare),
        None => args.run(),
    }
}

impl Args {
    fn run(&self) -> Result<ExitCode> {
        let cells = self.choice.cells()?;
        if self.list {
            for cell in &cells {
                println!("{}: {}", cell.group(), cell.name());
            }
            return Ok(ExitCode::SUCCESS);
        }
        for cell in &cells {
            ends::check_device(cell.provider, Path::new("/sys"))?;
        }
        let programs = programs::build(self.debug, self.no_build)?;
        let stage = self.stage(programs)?;
        if cells.iter().any(|cell| cell.backend == Backend::File) {
            programs::write_image(&stage.disk_image())?;
        }
        let results = self.measure(&cells, &stage)?;
        results.save(&stage.folder)?;
        pictures::draw(&results, &cells, &stage.folder)?;
        stage.clear();
        check_complete(&stage.folder, &cells, self.repeat())?;
        println!("{}\n{}", terminal(&results), results.machine.summary());
        println!("results in {}", stage.folder.display());
        Ok(ExitCode::SUCCESS)
    }

    /// All cells, in turns.
    fn measure(&self, cells: &[Cell], stage: &Stage) -> Result<Results> {
        let machine = Machine::here(Path::new(programs::WORKSPACE));
        let mut results = Results::begin(stage.name(), machine);
        results.notes = self.notes(stage);
        let total = self.repeat() as usize * cells.len();
        for turn in 0..self.repeat() as usize {
            for (at, cell) in cells.iter().enumerate() {
                let label = format!("{}: {}", cell.group(), cell.name());
                let done = turn * cells.len() + at + 1;
                progress(done, total, &label);
                let sample = stage.measure(cell).with_context(|| label)?;
                results.record(&cell.group(), &cell.name(), sample.metrics());
            }
        }
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
        create_dir(&folder)?;
        let several = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
        Ok(Stage {
            programs,
            folder,
            addresses: self.addresses(),
            cores: (0, usize::from(several)),
            seconds: self
                .seconds
                .unwrap_or(if self.choice.quick { 0.4 } else { 0.7 }),
        })
    }

    /// The device's address, or two of the loopback interface that no other run
    /// has: user-space RoCE has one UDP port for each address.
    fn addresses(&self) -> (IpAddr, IpAddr) {
        if let Some(address) = self.address {
            return (address, address);
        }
        let [.., high, low] = std::process::id().to_be_bytes();
        let end = |last| IpAddr::V4(Ipv4Addr::new(127, high, low, last));
        (end(1), end(2))
    }

    fn repeat(&self) -> u32 {
        self.repeat.unwrap_or(if self.choice.quick { 5 } else { 7 })
    }
}

impl Stage {
    fn name(&self) -> String {
        let name = self.folder.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Removes what only the run itself needed.
    fn clear(&self) {
        for file in ["disk.img", "target.toml", "target.log"] {
            let _ = fs::remove_file(self.folder.join(file));
        }
    }
}

/// One line on a terminal, written over; nothing elsewhere.
fn progress(done: usize, total: usize, label: &str) {
    let mut stderr = std::io::stderr().lock();
    if stderr.is_terminal() {
        let end = if done == total { "\n" } else { "" };
        let _ = write!(stderr, "\r\x1b[K{done}/{total}  {label}{end}");
        let _ = stderr.flush();
    }
}

/// Reads the results back: every cell is there, with every sample.
fn check_complete(folder: &Path, cells: &[Cell], repeat: u32) -> Result<()> {
    let results = Results::load(folder)?;
    for cell in cells {
        let (group, name) = (cell.group(), cell.name());
        let row = results.row(&group, &name);
        let row = row.with_context(|| format!("{group}: {name} is missing in the results"))?;
        for metric in &row.metrics {
            ensure!(
                metric.samples.len() == repeat as usize
                    && metric.samples.iter().all(|sample| sample.is_finite()),
                "{group}: {name} has not {repeat} samples of {}",
                metric.name
            );
        }
    }
    Ok(())
}

/// The time, as a folder's name.
fn now() -> Result<String> {
    let output = std::process::Command::new("date")
        .args(["-u", "+%Y-%m-%dT%H%M%SZ"])
        .output()
        .context("cannot run date")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A name that stays in its folder.
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
        for cell in Choice::default().cells().unwrap() {
            results.record(&cell.group(), &cell.name(), Vec::new());
        }
        let marks = Marks::parse(MARKS).unwrap();
        marks.put_on(&mut results);
        let marked = results.rows.iter().filter(|row| row.mark.is_some());
        assert_eq!(marked.count(), marks.len());
    }
}
