//! `cargo xtask hardware`: measurements of Cairn, nvmet and SPDK (docs/roce/adapters.md).

mod faults;
mod fio;
mod machines;
mod perftest;
mod ports;
mod report;
mod run;
mod shell;
mod spdk;
mod target;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::results::{Machine, Results};
use crate::vm::process::command;
use crate::vm::tree::{Tree, create_dir};
use machines::Machines;
use ports::Ports;
use run::Run;
use shell::quote;
use spdk::Spdk;
use target::{Kind, Targets, open_disk};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Network interfaces of the host's and the target's RDMA port
    #[arg(long, value_name = "A,B", value_delimiter = ',', required = true)]
    ports: Vec<String>,
    /// Machine of the target and its port, by ssh; root there, or sudo without a password
    #[arg(long, value_name = "[USER@]HOST")]
    peer: Option<String>,
    /// Block device to export, whose first 64 MiB are overwritten [default: memory, by null_blk]
    #[arg(long, value_name = "PATH")]
    disk: Option<PathBuf>,
    /// Targets to measure
    #[arg(long, value_delimiter = ',', default_value = "cairn,nvmet,spdk")]
    targets: Vec<Kind>,
    /// Build tree of SPDK on the target's machine, with build/bin/nvmf_tgt and scripts/rpc.py
    #[arg(long, value_name = "DIR")]
    spdk: Option<PathBuf>,
    /// Cores of SPDK, as its option -m
    #[arg(long, value_name = "MASK", default_value = "0x2")]
    spdk_mask: String,
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

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let [near, far] = args.ports.as_slice() else {
        anyhow::bail!("--ports takes two network interfaces: --ports A,B");
    };
    ensure!(
        rustix::process::geteuid().is_root(),
        "routes and targets are set up by root: run this as root"
    );
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

    let machines = Machines::start(args.peer.as_deref(), &out)?;
    let measured = measure(args, [near, far], &machines, &program, &tree, &out);
    match (measured, machines.lost()) {
        (Err(error), Some(lost)) if !format!("{error:#}").contains(&lost) => {
            return Err(error.context(lost));
        }
        (measured, _) => measured?,
    }
    drop(machines);
    println!("the report: {}", out.display());
    Ok(ExitCode::SUCCESS)
}

fn measure(
    args: &Args,
    [near, far]: [&str; 2],
    machines: &Machines,
    program: &Path,
    tree: &Tree,
    out: &Path,
) -> Result<()> {
    let ports = Ports::join(near, far, machines)?;
    let cairn = machines.far().copy(program)?;
    let findings = out.join("doctor.txt");
    let here = quote(&program.to_string_lossy());
    let has_errors = ports.doctor(&here, &cairn, &findings)?;
    ensure!(
        args.force || !has_errors,
        "the doctor found errors: repair them as {} says, or measure in spite of them with --force",
        findings.display()
    );
    let disk = open_disk(args.disk.as_deref(), machines.far())?;
    let mut results = Results::begin("Cairn on hardware", Machine::here(tree.workspace()));
    results.notes.push(ports.describe());
    results.notes.extend(machines.describe_peer()?);
    let spdk = find_spdk(args, machines, &mut results)?;
    let targets = Targets {
        machines,
        cairn,
        spdk,
        disk,
    };
    let mut run = Run::new(args, &ports, &targets, results);
    let ended = run.everything();
    let kept = run.keep_logs(out);
    ended.and(kept)?;
    let mut results = run.results;
    results.machine.ended();
    report::write(&results, out)
}

fn find_spdk(args: &Args, machines: &Machines, results: &mut Results) -> Result<Option<Spdk>> {
    if !args.targets.contains(&Kind::Spdk) {
        return Ok(None);
    }
    let found = Spdk::find(args.spdk.as_deref(), &args.spdk_mask, machines.far())?;
    results.notes.push(match &found {
        Ok(spdk) => spdk.describe(),
        Err(why) => format!("SPDK was not measured: {why}."),
    });
    Ok(found.ok())
}

fn build(tree: &Tree) -> Result<PathBuf> {
    let mut cargo = command("cargo");
    cargo.current_dir(tree.workspace());
    cargo.args(["build", "--quiet", "--release", "--bin", "cairn-target"]);
    let status = cargo.status().context("cannot run cargo")?;
    ensure!(status.success(), "cargo build of cairn-target failed");
    Ok(tree.build().join("release/cairn-target"))
}
