//! Cost of queue pairs and hosts at a target, also while they are idle (`cargo xtask bench scale`).
//!
//! `cairn-target` is a child process. All hosts are in this process, over user-space RoCE on
//! loopback addresses.

mod depth;
mod growth;
mod hosts;
mod idle;
mod report;
mod served;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;

use report::Report;
use served::Program;

/// Cost of a growing and of an idle target: throughput by queue pairs, memory, connecting, idling.
#[derive(Debug, Parser)]
#[command(name = "cairn-scale")]
struct Cli {
    /// Program of the target
    #[arg(long, value_name = "FILE")]
    target: Option<PathBuf>,
    /// Measurements to run [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Seconds of each timed run
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Outstanding commands, independent of the number of queue pairs
    #[arg(long, default_value_t = 128)]
    depth: u16,
    /// Numbers of I/O queue pairs
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 16, 64, 256])]
    queue_pairs: Vec<u16>,
    /// Number of controllers that the queue pairs belong to
    #[arg(long, default_value_t = 1)]
    hosts: u16,
    /// Connected hosts without I/O
    #[arg(long, default_value_t = 32)]
    idle_hosts: u16,
    /// Additional output file for JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Time from start to listening, and memory at that time
    Start,
    /// Throughput at a fixed depth, by queue pairs
    Depth,
    /// Memory of queue pairs and controllers, and time to connect a thousand
    Growth,
    /// Processor time of connected hosts without I/O, and latency of the next command
    Idle,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli).and_then(|report| print_report(&cli, &report)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn print_report(cli: &Cli, report: &Report) -> anyhow::Result<()> {
    print!("{}", report.table());
    if let Some(file) = &cli.json {
        fs::write(file, report.json()).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

fn run(cli: &Cli) -> anyhow::Result<Report> {
    let program = Program::new(cli.target.clone())?;
    let seconds = Duration::from_secs_f64(cli.seconds);
    let wanted = |part| cli.only.is_empty() || cli.only.contains(&part);
    let mut report = Report::default();
    if wanted(Part::Start) {
        idle::start(&program, &mut report)?;
    }
    if wanted(Part::Depth) {
        let load = depth::Load {
            depth: cli.depth,
            hosts: cli.hosts,
            seconds,
        };
        depth::measure(&program, &load, &cli.queue_pairs, &mut report)?;
    }
    if wanted(Part::Growth) {
        growth::measure(&program, &mut report)?;
    }
    if wanted(Part::Idle) {
        idle::measure(&program, cli.idle_hosts, seconds, &mut report)?;
    }
    Ok(report)
}
