//! `cargo xtask msrv`: libraries, programs and examples compile with the oldest Rust that Cargo.toml promises.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::cache::succeeds;
use crate::test::step::Step;

/// Cargo's output of that compiler, so that today's stays as it is.
const OUTPUT: &str = "build/msrv";

/// Installs that Rust if it is missing, and checks the workspace with it. Tests are for developers, who have the newest.
pub(crate) fn run() -> Result<ExitCode> {
    let version = promised()?;
    if !has(&version) && !install(&version) {
        // The same words that nextest has for a test that it leaves out.
        println!("SKIP [        ] msrv: rustup cannot install Rust {version} here");
        return Ok(ExitCode::SUCCESS);
    }
    let arguments = format!(
        "run {version} cargo check --workspace --lib --bins --examples --locked --quiet --target-dir {OUTPUT}"
    );
    let outcome = Step::program("msrv", "rustup", &arguments).run("")?;
    Ok(if outcome.success {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// `rust-version` of the workspace, with a patch level, as rustup names its tool chains.
fn promised() -> Result<String> {
    let version = env!("CARGO_PKG_RUST_VERSION");
    match version.split('.').count() {
        2 => Ok(format!("{version}.0")),
        3 => Ok(version.to_owned()),
        _ => Err(anyhow::anyhow!("rust-version is {version:?}")).context("in Cargo.toml"),
    }
}

fn has(version: &str) -> bool {
    succeeds(Command::new("rustup").args(["run", version, "cargo", "--version"]))
}

fn install(version: &str) -> bool {
    println!("installing Rust {version} by rustup");
    succeeds(Command::new("rustup").args(["toolchain", "install", version, "--profile", "minimal"]))
}
