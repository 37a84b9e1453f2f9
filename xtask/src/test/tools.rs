//! The tools that the steps need. What is missing is installed: the components
//! of Rust's own tool chain, cargo-deny into a cache of ours, and the packages of
//! the tests: tshark, which reads captures, fio, which loads our engine, and valgrind,
//! which counts.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::step::cargo;
use crate::vm::host;

/// The cargo-deny whose findings are the judge, so that a new one does not
/// fail yesterday's commit.
const CARGO_DENY_VERSION: &str = "0.20.2";

/// What there is.
pub(super) struct Tools {
    pub(super) cargo_deny: PathBuf,
    /// Whether cargo-nextest is installed. `cargo test` does as well, only slower.
    pub(super) nextest: bool,
}

impl Tools {
    /// Finds them, and installs what is missing.
    pub(super) fn prepare() -> Result<Self> {
        for (subcommand, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
            if !cargo_has(subcommand) {
                let rustup = Command::new("rustup")
                    .args(["component", "add", component])
                    .status();
                ensure!(
                    rustup.is_ok_and(|status| status.success()) && cargo_has(subcommand),
                    "cargo {subcommand} is not installed, and \"rustup component add {component}\" \
                     does not bring it: install it as this machine's Rust was installed"
                );
            }
        }
        host::require("tshark")?;
        host::require("fio")?;
        host::require("valgrind")?;
        Ok(Self {
            cargo_deny: cargo_deny()?,
            nextest: cargo_has("nextest"),
        })
    }
}

fn cargo_has(subcommand: &str) -> bool {
    succeeds(Command::new(cargo()).args([subcommand, "--version"]))
}

/// Our own cargo-deny, built the first time that it is asked for.
fn cargo_deny() -> Result<PathBuf> {
    let root = cache()?.join(format!("cargo-deny-{CARGO_DENY_VERSION}"));
    let program = root.join("bin/cargo-deny");
    if succeeds(Command::new(&program).arg("--version")) {
        return Ok(program);
    }
    println!(
        "installing cargo-deny {CARGO_DENY_VERSION} into {}: a few minutes, once",
        root.display()
    );
    let building = root.join("build");
    let status = Command::new(cargo())
        .args([
            "install",
            "--locked",
            "--quiet",
            "--version",
            CARGO_DENY_VERSION,
            "cargo-deny",
        ])
        .arg("--root")
        .arg(&root)
        .arg("--target-dir")
        .arg(&building)
        // Not the workspace: its settings are not cargo-deny's.
        .current_dir(Path::new("/"))
        .status()
        .context("cannot run cargo install")?;
    let _ = std::fs::remove_dir_all(&building);
    ensure!(
        status.success(),
        "cargo-deny cannot be installed: is the registry of crates within reach?"
    );
    Ok(program)
}

/// Where tools are kept from one clone to the next: beside the VM lab's layers.
fn cache() -> Result<PathBuf> {
    let user_cache = || {
        std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))
            .map(|cache| cache.join("cairn"))
    };
    let cairn = std::env::var_os("CAIRN_CACHE")
        .map(PathBuf::from)
        .or_else(user_cache);
    Ok(cairn
        .context("no place for tools: set CAIRN_CACHE or HOME")?
        .join("tools"))
}

fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
