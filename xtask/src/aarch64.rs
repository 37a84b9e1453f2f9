//! `cargo xtask aarch64`: type-checks the workspace for aarch64, and runs tests of memory, wire
//! formats and verbs under qemu-user. The data path is not tested: qemu-user lacks io_uring.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::test::step::Step;
use crate::vm::host;

const PLATFORM: &str = "aarch64-unknown-linux-gnu";
const PROGRAMS: [(&str, &str); 3] = [
    ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    ("qemu-aarch64", "qemu-user"),
    ("/usr/aarch64-linux-gnu/lib/crti.o", "libc6-dev-arm64-cross"),
];

pub(crate) fn run() -> Result<ExitCode> {
    if let Err(reason) = require() {
        println!("SKIP [        ] aarch64: the machine cannot build for it: {reason:#}");
        return Ok(ExitCode::SUCCESS);
    }
    let check = format!("check --workspace --locked --quiet --target {PLATFORM}");
    let tests = format!(
        "nextest run -p cairn-rdma -p cairn-verbs -p nvme-proto --lib \
         --locked --target {PLATFORM} --status-level slow"
    );
    for step in [
        Step::cargo("aarch64, check", &check),
        Step::cargo("aarch64, tests", &tests),
    ] {
        let step = step
            .with_env("CARGO_TARGET_DIR", "build/aarch64")
            .with_env("CARGO_PROFILE_DEV_DEBUG", "0")
            .with_env(
                "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
                PROGRAMS[0].0,
            )
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
    host::require_programs(&PROGRAMS)?;
    let mut add = Command::new("rustup");
    cairn_skips::probe(add.args(["target", "add", PLATFORM])).map_err(anyhow::Error::msg)?;
    Ok(())
}
