//! `cargo xtask semver`: compares the libraries' public items with an earlier commit, by
//! cargo-semver-checks.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::cache::{Tool, cached_tool};
use crate::test::step::Step;

const SEMVER_CHECKS: Tool = Tool {
    name: "cargo-semver-checks",
    version: "0.51.0",
    busy: &[],
};

const LIBRARIES: [&str; 2] = ["nvme-proto", "cairn-initiator"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Commit to compare with [default: the newest release tag]
    #[arg(long, value_name = "COMMIT")]
    baseline: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let baseline = match &args.baseline {
        Some(commit) => commit.clone(),
        None => newest_release()?,
    };
    let program = cached_tool(&SEMVER_CHECKS)?;
    let mut success = true;
    for library in LIBRARIES {
        let arguments = format!("semver-checks --package {library} --baseline-rev {baseline}");
        let outcome = Step::program("semver", program.clone(), &arguments)
            .with_env("CARGO_TARGET_DIR", "build/semver")
            .run("")?;
        success &= outcome.success;
    }
    Ok(if success {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn newest_release() -> Result<String> {
    let mut describe = Command::new("git");
    describe.args(["describe", "--tags", "--abbrev=0", "--match", "v*"]);
    let tag = cairn_skips::probe(&mut describe)
        .map_err(anyhow::Error::msg)
        .context("no release tag v* found: name a commit with --baseline")?;
    Ok(tag.trim().to_owned())
}
