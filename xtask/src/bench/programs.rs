use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::cell::Provider;
use super::item::Item;
use crate::fio_report::Report;

pub(super) const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

const IMAGE_MIB: usize = 256;

pub(super) type Program = (&'static str, &'static str);

const TARGET: Program = ("--bin", "cairn-target");
const HOST: Program = ("--bin", "cairn-initiator");
const ONE_PROCESS: Program = ("--bin", "cairn-bench-loopback");
const DISK: Program = ("--example", "cairn-bench-disk");
const LINK: Program = ("--example", "loopback_speed");

const SCALE: Program = ("--bin", "cairn-scale");

pub(super) const OF_DISKS: &[Program] = &[DISK];

pub(super) const OF_SCALE: &[Program] = &[TARGET, SCALE];

pub(super) const OF_ALL_ENDS: &[Program] = &[TARGET, HOST, SCALE];

fn of_item(item: &Item) -> &'static [Program] {
    match item {
        Item::Cell(cell) if cell.provider == Provider::Loopback => &[ONE_PROCESS],
        Item::Cell(_) => &[TARGET, HOST],
        Item::Disk(_) => &[DISK],
        Item::Link => &[LINK],
    }
}

pub(super) fn build(items: &[Item], debug: bool, no_build: bool) -> Result<PathBuf> {
    let mut programs: Vec<Program> = Vec::new();
    for program in items.iter().flat_map(of_item) {
        if !programs.contains(program) {
            programs.push(*program);
        }
    }
    build_all(&programs, debug, no_build)
}

pub(super) fn build_all(programs: &[Program], debug: bool, no_build: bool) -> Result<PathBuf> {
    if !no_build {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.current_dir(WORKSPACE).args(["build", "--quiet"]);
        for (kind, name) in programs {
            cargo.args([kind, name]);
        }
        if !debug {
            cargo.arg("--release");
        }
        let status = cargo.status().context("cannot run cargo")?;
        ensure!(status.success(), "cargo build failed");
    }
    let folder = output().join(if debug { "debug" } else { "release" });
    for (kind, name) in programs {
        let sub = if *kind == "--example" { "examples" } else { "" };
        let program = folder.join(sub).join(name);
        ensure!(
            program.exists(),
            "no program at {}: leave out --no-build",
            program.display()
        );
    }
    Ok(folder)
}

pub(super) fn pinned(core: usize, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string()]).arg(program);
    command
}

pub(super) fn report(command: &mut Command) -> Result<Report> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{command:?} ended with {}:\n{errors}",
        output.status
    );
    let text = String::from_utf8_lossy(&output.stdout);
    Report::read(&text).with_context(|| format!("the report of {command:?}:\n{text}"))
}

pub(super) fn has_fio() -> bool {
    let version = Command::new("fio").arg("--version").output();
    version.is_ok_and(|output| output.status.success())
}

pub(super) fn results() -> PathBuf {
    output().join("bench")
}

fn output() -> PathBuf {
    let workspace = Path::new(WORKSPACE);
    let workspace = workspace.canonicalize().unwrap_or(workspace.to_owned());
    let folder = std::env::var_os("CARGO_TARGET_DIR").unwrap_or("build".into());
    workspace.join(folder)
}

pub(super) fn write_image(path: &Path) -> Result<()> {
    let write = || {
        let mut file = File::create(path)?;
        let mut random = fastrand::Rng::with_seed(0);
        let mut piece = vec![0; 1 << 20];
        for _ in 0..IMAGE_MIB {
            random.fill(&mut piece);
            file.write_all(&piece)?;
        }
        file.sync_all()
    };
    write().with_context(|| format!("cannot write {IMAGE_MIB} MiB to {}", path.display()))
}
