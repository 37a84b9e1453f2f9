//! `cargo xtask aarch64`: type-checks the workspace for aarch64, and runs tests of memory, wire
//! formats and verbs under qemu-user. Because that lacks io_uring, `cargo xtask vm --arch aarch64`
//! tests the data path.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::test::step::Step;
use crate::vm::{cross, host};

const EMULATOR: (&str, &str) = ("qemu-aarch64", "qemu-user");

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
        let step = cross::ENVIRONMENT
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

fn require() -> Result<()> {
    let mut nextest = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cairn_skips::probe(nextest.args(["nextest", "--version"])).map_err(anyhow::Error::msg)?;
    host::require_programs(&[EMULATOR])?;
    cross::require_compiler()
}
