//! `cargo xtask bench flame`: flame graph of the target's reactor, sampled by perf.

mod picture;
mod stacks;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use super::cell::{Backend, Cell, Depth, Provider, QueuePairs, Size, Workload};
use super::ends::Stage;
use super::item::Item;
use super::programs;
use picture::Picture;
use stacks::Tree;

const RATE_HZ: u32 = 997;

const STACK_BYTES: u32 = 16_384;

const THREADS: &str = "reactor";

#[derive(clap::Args)]
pub(super) struct Args {
    /// Workload of the host: randread, randwrite, mixed
    #[arg(long, default_value = "randread")]
    rw: String,
    /// Bytes of each command
    #[arg(long, default_value = "4k")]
    size: String,
    /// Outstanding commands
    #[arg(long, default_value = "32")]
    depth: String,
    /// Disk of the target: null, mem, file
    #[arg(long, default_value = "mem")]
    backend: String,
    /// Seconds of the measurement
    #[arg(long, default_value = "4", value_parser = super::seconds)]
    seconds: f64,
    /// Use the existing programs without building
    #[arg(long)]
    no_build: bool,
    /// File for the picture [default: build/bench/flame.svg]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let perf = Command::new("perf").arg("--version").output();
    ensure!(
        perf.is_ok_and(|output| output.status.success()),
        "perf is not installed: apt install linux-perf (or linux-tools-generic)"
    );
    let cell = args.cell()?;
    let item = Item::Cell(cell);
    let programs = programs::build(&[item], false, args.no_build)?;
    let folder = programs::results().join("flame");
    let mut stage = Stage::new(programs, &folder, None, args.seconds)?;
    stage.prepare(&[item])?;
    let data = stage.folder.join("perf.data");
    let sample = stage.watched(&cell, |pid| record(pid, args.seconds, &data))?;
    let tree = read(&data)?;
    stage.clear();
    let _ = fs::remove_file(&data);
    ensure!(
        tree.samples() > 0,
        "perf has seen nothing: may you look at other processes? \
         (sysctl kernel.perf_event_paranoid)"
    );
    let default = programs::results().join("flame.svg");
    let output = args.output.as_ref().unwrap_or(&default);
    let title = format!(
        "the target's reactor: {}, {} samples at {RATE_HZ} Hz",
        item.label(),
        tree.samples()
    );
    fs::write(output, Picture::of(&tree).svg(&title))
        .with_context(|| format!("cannot write {}", output.display()))?;
    println!("{}: {:.0} IOPS", item.label(), sample.report.iops);
    print!("{}", tree.hottest(12));
    println!("picture in {}", output.display());
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn cell(&self) -> Result<Cell> {
        Ok(Cell {
            provider: Provider::Soft,
            backend: self.backend.parse::<Backend>()?,
            workload: self.rw.parse::<Workload>()?,
            size: self.size.parse::<Size>()?,
            depth: self.depth.parse::<Depth>()?,
            queue_pairs: QueuePairs(1),
        })
    }
}

fn record(pid: u32, seconds: f64, data: &Path) -> Result<()> {
    let status = Command::new("perf")
        .args(["record", "--quiet", "-e", "cpu-clock"])
        .args(["-F", &RATE_HZ.to_string()])
        .args(["--call-graph", &format!("dwarf,{STACK_BYTES}")])
        .args(["-p", &pid.to_string()])
        .arg("-o")
        .arg(data)
        .args(["--", "sleep", &format!("{:.2}", seconds * 0.8)])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("cannot run perf")?;
    ensure!(status.success(), "perf record ended with {status}");
    Ok(())
}

fn read(data: &Path) -> Result<Tree> {
    let output = Command::new("perf")
        .args(["script", "--no-inline", "-F", "comm,ip,sym", "-i"])
        .arg(data)
        .stdin(Stdio::null())
        .output()
        .context("cannot run perf")?;
    ensure!(
        output.status.success(),
        "perf script: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(Tree::of_script(&text, THREADS))
}
