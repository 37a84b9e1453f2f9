//! Tools for the steps: installed on the system, or in a cache folder (cargo-deny, SPDK's client).

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Result, ensure};

use super::plan::Extent;
use super::step::{Step, WORKSPACE, cargo};
use crate::cache::{self, Tool, cached_tool, succeeds};
use crate::spdk_client;
use crate::vm::host;

/// cargo-deny in a fixed version: a new release must not fail earlier commits.
const CARGO_DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
    busy: &[],
};

/// Packages for tests, each with a program of the same name.
const PACKAGES_OF_TESTS: [&str; 4] = ["tshark", "fio", "zsh", "fish"];
const PACKAGES_OF_REST: [&str; 3] = ["valgrind", "rpm", "runc"];

pub(super) struct Tools {
    pub(super) nextest: bool,
    pub(super) promtool: Option<PathBuf>,
    pub(super) spdk_client: Option<PathBuf>,
}

/// Finds or installs the tools before the lanes start: two lanes cannot install packages
/// concurrently.
pub(super) fn prepare(extent: Extent, vm: bool) -> Result<Tools> {
    warn_of_full_disk(extent);
    require_component("fmt", "rustfmt")?;
    if extent.has_rest() {
        require_component("clippy", "clippy")?;
    }
    let mut packages = Vec::new();
    if extent != Extent::Quick {
        packages.extend(PACKAGES_OF_TESTS);
    }
    if extent.has_rest() {
        packages.extend(PACKAGES_OF_REST);
    }
    host::require(&packages, vm && extent != Extent::Quick)?;
    if extent != Extent::Quick
        && let Err(error) = host::require_programs(&host::CEPH)
    {
        eprintln!("without Ceph, whose tests will be skipped: {error:#}");
    }
    let promtool = (extent != Extent::Quick).then(promtool);
    if let Some(Err(error)) = &promtool {
        eprintln!("without promtool, whose test will be skipped: {error:#}");
    }
    if extent.has_rest() && !spdk_client::has_pip() {
        let _ = host::require_programs(&spdk_client::PROGRAMS);
    }
    let spdk_client = extent.has_rest().then(spdk_client::fetch);
    if let Some(Err(error)) = &spdk_client {
        eprintln!("without SPDK's client, whose tests will be skipped: {error:#}");
    }
    Ok(Tools {
        nextest: cargo_has("nextest"),
        promtool: promtool.and_then(Result::ok),
        spdk_client: spdk_client.and_then(Result::ok),
    })
}

/// Warns of a disk that may be too small for the steps: programs report a full disk unclearly.
fn warn_of_full_disk(extent: Extent) {
    let needed_gib = match extent {
        Extent::Quick => 4,
        Extent::Main => 8,
        Extent::Rest | Extent::All => 14,
    };
    let Ok(disk) = rustix::fs::statvfs(".") else {
        return;
    };
    let free_gib = disk.f_bavail.saturating_mul(disk.f_frsize) >> 30;
    println!("{free_gib} GiB of disk space are free; a first run needs about {needed_gib} GiB");
    if free_gib < needed_gib {
        eprintln!("steps may fail because the disk is full: remove other files from it");
    }
}

fn promtool() -> Result<PathBuf> {
    if succeeds(Command::new("promtool").arg("--version")) {
        return Ok("promtool".into());
    }
    let root = cache::folder()?.join("tools/promtool");
    let program = root.join("usr/bin/promtool");
    if !succeeds(Command::new(&program).arg("--version")) {
        cache::unpack_package("prometheus", "./usr/bin/promtool", &root)?;
    }
    Ok(program)
}

fn require_component(subcommand: &str, component: &str) -> Result<()> {
    if cargo_has(subcommand) {
        return Ok(());
    }
    let rustup = Command::new("rustup")
        .args(["component", "add", component])
        .status();
    ensure!(
        rustup.is_ok_and(|status| status.success()) && cargo_has(subcommand),
        "cargo {subcommand} is not installed, and \"rustup component add {component}\" does not \
         bring it: install it as this machine's Rust was installed"
    );
    Ok(())
}

/// `cargo xtask dependencies`: checks licences, sources, duplicates and, with access to the RustSec
/// database, vulnerabilities.
pub(crate) fn check_dependencies() -> Result<ExitCode> {
    let deny = cached_tool(&CARGO_DENY)?;
    let mut fetch = Command::new(&deny);
    fetch.args(["--locked", "--workspace", "fetch", "db"]);
    let arguments = match cairn_skips::probe(fetch.current_dir(WORKSPACE)) {
        Ok(_) => "--locked --workspace check bans licenses sources advisories",
        Err(reason) => {
            println!(
                "SKIP [        ] dependencies: the advisories of RustSec cannot be fetched: {reason}"
            );
            "--locked --workspace check bans licenses sources"
        }
    };
    let outcome = Step::program("dependencies", deny, arguments).run("")?;
    Ok(if outcome.success {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn cargo_has(subcommand: &str) -> bool {
    succeeds(Command::new(cargo()).args([subcommand, "--version"]))
}
