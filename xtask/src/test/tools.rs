//! The tools that the steps need. What is missing is installed: the components of Rust's own
//! tool chain, packages, and cargo-deny and SPDK's client into a cache of ours.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Result, ensure};

use super::plan::Extent;
use super::step::{Step, WORKSPACE, cargo};
use crate::cache::{Tool, cached_tool, succeeds};
use crate::spdk_client;
use crate::vm::host;

/// The cargo-deny whose findings are the judge, so that a new one does not
/// fail yesterday's commit.
const CARGO_DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
    busy: &[],
};

/// Packages of the tests, each with a program of its name: tshark reads captures, fio loads our
/// engine.
const PACKAGES_OF_TESTS: [&str; 2] = ["tshark", "fio"];
/// The same of longer runs: valgrind counts instructions, rpm and runc use the packages that we make.
const PACKAGES_OF_REST: [&str; 3] = ["valgrind", "rpm", "runc"];

/// What there is.
pub(super) struct Tools {
    /// Whether cargo-nextest is installed. `cargo test` does as well, only slower.
    pub(super) nextest: bool,
    /// The folder of SPDK's own client, if it is available.
    pub(super) spdk_client: Option<PathBuf>,
}

/// Finds what a run needs, and installs what is missing. All packages come now: two lanes that
/// install at once would get in each other's way.
pub(super) fn prepare(extent: Extent, vm: bool) -> Result<Tools> {
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
        // Its tests record a skip each.
        eprintln!("without Ceph, whose tests will be skipped: {error:#}");
    }
    if extent.has_rest() && !spdk_client::has_pip() {
        // Where apt cannot install it, the error below says what is missing.
        let _ = host::require_programs(&spdk_client::PROGRAMS);
    }
    let spdk_client = extent.has_rest().then(spdk_client::fetch);
    if let Some(Err(error)) = &spdk_client {
        // The same.
        eprintln!("without SPDK's client, whose tests will be skipped: {error:#}");
    }
    Ok(Tools {
        nextest: cargo_has("nextest"),
        spdk_client: spdk_client.and_then(Result::ok),
    })
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

/// `cargo xtask dependencies`: licences, sources and duplicates of the crates that we use; also
/// known faults of theirs, where the database of RustSec is within reach.
pub(crate) fn check_dependencies() -> Result<ExitCode> {
    let deny = cached_tool(&CARGO_DENY)?;
    let has_advisories = succeeds(
        Command::new(&deny)
            .args(["--locked", "--workspace", "fetch", "db"])
            .current_dir(WORKSPACE),
    );
    let arguments = if has_advisories {
        "--locked --workspace check bans licenses sources advisories"
    } else {
        // The same words that nextest has for a test that it leaves out.
        println!("SKIP [        ] dependencies: the advisories of RustSec cannot be fetched here");
        "--locked --workspace check bans licenses sources"
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
