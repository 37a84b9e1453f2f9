//! `cairn-fabric-conformance`: conformance suite for a fabric provider.

use std::net::IpAddr;
use std::process::ExitCode;

use anyhow::Result;
use cairn_tests::case;
use cairn_tests::fabric::{self, Setting};
use cairn_tests::provider::ProviderName;
use clap::Parser;

/// Tests whether a fabric provider follows the fabric model.
#[derive(Debug, Parser)]
struct Arguments {
    /// RDMA provider to test
    #[arg(long, value_enum)]
    provider: ProviderName,
    /// Address of a device of the provider, used by both ends of each connection
    #[arg(long, default_value = "127.0.0.1")]
    addr: IpAddr,
    /// List the cases with their requirements
    #[arg(long)]
    list: bool,
    /// Cases to run [default: all]
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
