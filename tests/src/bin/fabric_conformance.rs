//! `cairn-fabric-conformance`: conformance suite for a fabric provider.

use std::net::IpAddr;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use anyhow::{Context, Result};
use cairn_rdma::Provider;
use cairn_tests::case;
use cairn_tests::fabric::{self, Setting};
use cairn_tests::provider::ProviderName;
use cairn_verbs::{Quirks, VerbsProvider};
use clap::Parser;

/// Tests whether a fabric provider follows the fabric model.
#[derive(Debug, Parser)]
struct Arguments {
    #[arg(long, value_enum)]
    provider: ProviderName,
    /// Address of a device of the provider, used by both ends of each connection
    #[arg(long, default_value = "127.0.0.1")]
    addr: IpAddr,
    /// Adapter profile whose quirks the verbs provider simulates, or `all`
    #[arg(long)]
    quirks: Option<String>,
    #[arg(long)]
    list: bool,
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
    let quirks = arguments.quirks.as_deref();
    if quirks == Some("all") {
        return each_profile(&arguments);
    }
    let setting = Setting {
        provider: match quirks {
            Some(name) => open_with(name)?,
            None => arguments.provider.open()?,
        },
        ip: arguments.addr,
    };
    Ok(if case::run_all(&chosen, |case| (case.run)(&setting)) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn open_with(quirks: &str) -> Result<Arc<dyn Provider>> {
    let known = Quirks::named(quirks);
    let quirks = known.with_context(|| format!("there is no profile {quirks:?}"))?;
    Ok(Arc::new(VerbsProvider::with_quirks(quirks)?))
}

fn each_profile(arguments: &Arguments) -> Result<ExitCode> {
    let mut end = ExitCode::SUCCESS;
    for quirks in Quirks::ALL {
        println!("profile {}", quirks.name);
        let mut suite = Command::new(std::env::current_exe()?);
        suite.args(["--provider", "verbs", "--quirks", quirks.name, "--addr"]);
        suite.arg(arguments.addr.to_string()).args(&arguments.cases);
        if !suite.status()?.success() {
            println!("FAILED  profile {}", quirks.name);
            end = ExitCode::FAILURE;
        }
    }
    Ok(end)
}
