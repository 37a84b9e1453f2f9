//! `cargo xtask msrv`: type-checks libraries, programs and examples with the minimum Rust version
//! of Cargo.toml. Tests are not checked.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::cache::succeeds;
use crate::test::step::Step;

const OUTPUT: &str = "build/msrv";

pub(crate) fn run() -> Result<ExitCode> {
    let version = promised()?;
    if let Err(reason) = require(&version) {
        println!("SKIP [        ] msrv: rustup cannot install Rust {version}: {reason}");
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

fn promised() -> Result<String> {
    let version = env!("CARGO_PKG_RUST_VERSION");
    match version.split('.').count() {
        2 => Ok(format!("{version}.0")),
        3 => Ok(version.to_owned()),
        _ => Err(anyhow::anyhow!("rust-version is {version:?}")).context("in Cargo.toml"),
    }
}

fn require(version: &str) -> Result<(), String> {
    if succeeds(Command::new("rustup").args(["run", version, "cargo", "--version"])) {
        return Ok(());
    }
    println!("installing Rust {version} by rustup");
    let mut install = Command::new("rustup");
    install.args(["toolchain", "install", version, "--profile", "minimal"]);
    cairn_skips::probe(&mut install).map(drop)
}
