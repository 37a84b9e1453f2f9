//! `cargo xtask loom`: model checking of thread interleavings.
//!
//! `--cfg cairn_loom` replaces locks, atomics and wake-ups with loom's. If a wake-up is lost, loom
//! reports a deadlock.

use std::process::ExitCode;

use anyhow::Result;

use crate::test::step::Step;

pub(crate) fn run() -> Result<ExitCode> {
    let models =
        "test -p cairn-base -p cairn-rdma --lib --locked --target-dir build/loom -- loom_models";
    let outcome = Step::cargo("loom", models)
        .with_env("RUSTFLAGS", "--cfg cairn_loom")
        .with_env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .run("")?;
    Ok(if outcome.success {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
