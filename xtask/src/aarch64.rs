//! `cargo xtask aarch64`: type-checks the workspace for aarch64, and runs tests of memory, wire
//! formats and verbs under qemu-user. The data path is not tested: qemu-user lacks io_uring.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::test::step::Step;
use crate::vm::host;

const PLATFORM: &str = "aarch64-unknown-linux-gnu";
/// Cargo's target folder for aarch64, in the workspace.
const FOLDER: &str = "build/aarch64";
const COMPILER: [(&str, &str); 2] = [
    ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    ("/usr/aarch64-linux-gnu/lib/crti.o", "libc6-dev-arm64-cross"),
];
const EMULATOR: (&str, &str) = ("qemu-aarch64", "qemu-user");

/// Environment in which cargo builds for aarch64 in the workspace, with a linker for it.
pub(crate) const ENVIRONMENT: [(&str, &str); 4] = [
    ("CARGO_BUILD_TARGET", PLATFORM),
    ("CARGO_TARGET_DIR", FOLDER),
    ("CARGO_PROFILE_DEV_DEBUG", "0"),
    (
        "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
        COMPILER[0].0,
    ),
];

pub(crate) fn run() -> Result<ExitCode> {
    if let Err(reason) = require() {
        println!("SKIP [        ] aarch64: the machine cannot build for it: {reason:#}");
        return Ok(ExitCode::SUCCESS);
    }
    let tests = "nextest run -p cairn-rdma -p cairn-verbs -p nvme-proto --lib --locked \
                 --status-level slow";
    for step in [
        Step::cargo("aarch64, check", "check --workspace --locked --quiet"),
        Step::cargo("aarch64, tests", tests),
    ] {
        let step = ENVIRONMENT
            .iter()
            .fold(step, |step, (name, value)| step.with_env(name, value))
            .with_env(
                "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
                "qemu-aarch64 -L /usr/aarch64-linux-gnu",
            );
        if !step.run("")?.success {
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Folder of cargo's profile folders.
pub(crate) fn built(workspace: &Path) -> PathBuf {
    workspace.join(FOLDER).join(PLATFORM)
}

fn require() -> Result<()> {
    let mut nextest = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cairn_skips::probe(nextest.args(["nextest", "--version"])).map_err(anyhow::Error::msg)?;
    host::require_programs(&[EMULATOR])?;
    require_compiler()
}

/// Installs compiler and standard library for aarch64 if they are missing.
pub(crate) fn require_compiler() -> Result<()> {
    host::require_programs(&COMPILER)?;
    let mut add = Command::new("rustup");
    cairn_skips::probe(add.args(["target", "add", PLATFORM])).map_err(anyhow::Error::msg)?;
    Ok(())
}
