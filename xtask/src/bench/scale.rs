//! `cargo xtask bench scale`: cost of queue pairs, controllers and idle hosts (`cairn-scale`).

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use super::programs;
use crate::vm::tree::create_dir;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Measure programs without optimisation, to try the benchmark itself
    #[arg(long)]
    debug: bool,
    /// Use the existing programs without building
    #[arg(long)]
    no_build: bool,
    /// Options of cairn-scale, listed by -- --help
    #[arg(last = true)]
    options: Vec<String>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let programs = programs::build_all(programs::OF_SCALE, args.debug, args.no_build)?;
    let folder = programs::results();
    create_dir(&folder)?;
    let file = folder.join("scale.json");
    let status = Command::new(programs.join("cairn-scale"))
        .arg("--json")
        .arg(&file)
        .args(&args.options)
        .status()
        .context("cannot run cairn-scale")?;
    if !status.success() {
        return Ok(ExitCode::FAILURE);
    }
    println!("figures in {}", file.display());
    Ok(ExitCode::SUCCESS)
}
