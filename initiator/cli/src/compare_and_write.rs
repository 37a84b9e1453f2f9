//! The command `compare-and-write`: writes a block with a fused pair of commands.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::Result;
use super::io::{Blocks, Leave, Target};
use super::number::number;
use super::output::print;
use super::reservations::explain_conflict;

#[derive(Debug, Args)]
pub(super) struct CompareAndWrite {
    /// Block
    #[arg(long, value_name = "LBA", visible_alias = "slba", default_value_t = 0, value_parser = number::<u64>)]
    start_block: u64,
    /// File with the expected data: one block
    #[arg(long, value_name = "FILE")]
    expected: PathBuf,
    /// File with the new data: one block [default: stdin]
    #[arg(short = 'd', long, value_name = "FILE")]
    data: Option<PathBuf>,
    #[command(flatten)]
    leave: Leave,
    #[command(flatten)]
    target: Target,
}

impl CompareAndWrite {
    pub(super) fn usage(&self) -> Result<()> {
        self.leave.check("compare-and-write")
    }

    pub(super) fn run(&self) -> Result<ExitCode> {
        let mut disk = self.target.open()?;
        let slba = self.start_block;
        disk.stretch(&Blocks::one(slba), None)?;
        let expected = disk.block("--expected", Some(&self.expected))?;
        let new = disk.block("-d", self.data.as_deref())?;
        let is_written = disk
            .namespace
            .compare_and_write(&mut disk.host, slba, &expected, &new)
            .map_err(|error| explain_conflict(&error))?;
        disk.close()?;
        Ok(if is_written {
            print(&format!("compare-and-write: block {slba}: Success"));
            ExitCode::SUCCESS
        } else {
            print(&format!(
                "compare-and-write: block {slba}: it differs from the expected data, nothing is written"
            ));
            ExitCode::FAILURE
        })
    }
}
