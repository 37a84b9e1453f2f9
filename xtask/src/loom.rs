//! `cargo xtask loom`: the places where threads meet, in every order in which they can.
//!
//! The crate is compiled with `--cfg cairn_loom`, which exchanges its locks, atomics and wake-ups
//! for loom's; its code is the same otherwise. loom runs each model once for each order, and finds
//! a wake-up that is lost as a deadlock.

use std::process::ExitCode;

use anyhow::Result;

use crate::test::step::Step;

/// Runs the models, which are unit tests in modules of that name.
pub(crate) fn run() -> Result<ExitCode> {
    let models = "test -p cairn-rdma --lib --locked --target-dir build/loom -- loom_models";
    let outcome = Step::cargo("loom", models)
        .with_env("RUSTFLAGS", "--cfg cairn_loom")
        // It tries thousands of orders.
        .with_env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .run("")?;
    Ok(if outcome.success {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
