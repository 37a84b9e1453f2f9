//! `cargo xtask hardware`: measurements of Cairn and nvmet (docs/roce/adapters.md).

mod faults;
mod fio;
mod perftest;
mod ports;
mod report;
mod run;
mod target;
mod undo;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::results::{Machine, Results};
use crate::vm::host::on_path;
use crate::vm::process::command;
use crate::vm::tree::{Tree, create_dir};
use ports::Ports;
use run::Run;
use target::{Disk, Kind};
use undo::Undo;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Network interfaces of the host's and the target's RDMA port
    #[arg(long, value_name = "A,B", value_delimiter = ',', required = true)]
    ports: Vec<String>,
    /// Block device to export, whose first 64 MiB are overwritten [default: memory, by null_blk]
    #[arg(long, value_name = "PATH")]
    disk: Option<PathBuf>,
    /// Targets to measure
    #[arg(long, value_delimiter = ',', default_value = "cairn,nvmet")]
    targets: Vec<Kind>,
    /// Bytes of an I/O
    #[arg(long, value_delimiter = ',', default_value = "4k,128k")]
    sizes: Vec<String>,
    /// I/Os in flight
    #[arg(long, value_delimiter = ',', default_value = "1,32,128")]
    depths: Vec<u32>,
    /// Seconds of each row in each round
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Measurements of each row and target
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Connects and disconnects of each target
    #[arg(long, default_value_t = 1000)]
    reconnects: u32,
    /// Ask to pull the cable under I/O
    #[arg(long)]
    pull: bool,
    /// Continue in spite of the doctor's errors
    #[arg(long)]
    force: bool,
    /// Folder with cairn-target [default: build it]
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Folder of the report [default: build/hardware]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

const TOOLS: [&str; 9] = [
    "fio", "nvme", "rdma", "ip", "ping", "sysctl", "modprobe", "setsid", "setpriv",
];

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let [near, far] = args.ports.as_slice() else {
        anyhow::bail!("--ports takes two network interfaces: --ports A,B");
    };
    ensure!(
        rustix::process::geteuid().is_root(),
        "routes and targets are set up by root: run this as root"
    );
    for tool in TOOLS {
        ensure!(
            on_path(tool),
            "{tool} is missing: apt-get install fio nvme-cli iproute2 iputils-ping util-linux"
        );
    }
    let tree = Tree::locate()?;
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| tree.build().join("hardware"));
    create_dir(&out)?;
    let program = match &args.programs {
        Some(folder) => folder.join("cairn-target"),
        None => build(&tree)?,
    };

    let mut undo = Undo::start()?;
    let ports = Ports::join(near, far, &mut undo)?;
    let findings = out.join("doctor.txt");
    let has_errors = ports.doctor(&program, &findings)?;
    ensure!(
        args.force || !has_errors,
        "the doctor found errors: repair them as {} says, or measure in spite of them with --force",
        findings.display()
    );
    let disk = Disk::open(args.disk.as_deref(), &mut undo)?;
    let results = Results::begin("Cairn on hardware", Machine::here(tree.workspace()));
    let mut run = Run::new(args, &ports, &disk, program, out.clone(), results);
    run.everything(&mut undo)?;
    let mut results = run.results;
    results.notes.insert(0, ports.describe());
    results.machine.ended();
    report::write(&results, &out)?;
    undo.finish()?;
    println!("the report: {}", out.display());
    Ok(ExitCode::SUCCESS)
}

fn build(tree: &Tree) -> Result<PathBuf> {
    let mut cargo = command("cargo");
    cargo.current_dir(tree.workspace());
    cargo.args(["build", "--quiet", "--release", "--bin", "cairn-target"]);
    let status = cargo.status().context("cannot run cargo")?;
    ensure!(status.success(), "cargo build of cairn-target failed");
    Ok(tree.build().join("release/cairn-target"))
}
