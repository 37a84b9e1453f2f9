//! `cairn-fabric-conformance`: conformance suite for a fabric provider.

use std::net::IpAddr;
use std::process::ExitCode;

use anyhow::Result;
use cairn_tests::case;
use cairn_tests::fabric::{self, Setting};
use cairn_tests::provider::ProviderName;
use clap::Parser;

/// Holds a fabric provider to the fabric model.
#[derive(Debug, Parser)]
struct Arguments {
    /// The provider to judge.
    #[arg(long, value_enum)]
    provider: ProviderName,
    /// An address of one of its devices; both ends of each connection are there.
    #[arg(long, default_value = "127.0.0.1")]
    addr: IpAddr,
    /// Show the cases and what each demands.
    #[arg(long)]
    list: bool,
    /// The cases to run; all if none are named.
    cases: Vec<String>,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let all = fabric::cases();
    if arguments.list {
        case::list(&all);
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = case::select(&all, &arguments.cases)?;
    let setting = Setting {
        provider: arguments.provider.open()?,
        ip: arguments.addr,
    };
    Ok(if case::run_all(&chosen, |case| (case.run)(&setting)) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
