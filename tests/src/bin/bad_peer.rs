//! `cairn-bad-peer`: test suite of misbehaving hosts.

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Result, anyhow};
use cairn_tests::bad_peer::{self, Setting};
use cairn_tests::case::{self, Case};
use cairn_tests::provider::ProviderName;
use clap::Parser;
use nvme_proto::wire::Nqn;

/// Misbehaves towards a target, case by case, and checks the reactions of the target.
///
/// Data in the namespace is overwritten. The namespace must have 64 MiB and blocks of 512 bytes.
#[derive(Debug, Parser)]
struct Arguments {
    /// RDMA provider; `loopback` reaches only targets in the same process
    #[arg(long, value_enum, default_value = "verbs")]
    provider: ProviderName,
    #[arg(long, required_unless_present = "list")]
    addr: Option<IpAddr>,
    #[arg(long, default_value_t = 4420)]
    port: u16,
    #[arg(long, required_unless_present = "list")]
    nqn: Option<String>,
    #[arg(long, default_value_t = 1)]
    nsid: u32,
    #[arg(long, default_value_t = 60)]
    patience: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, default_value_t = 10_000)]
    random_capsules: u32,
    #[arg(long)]
    list: bool,
    cases: Vec<String>,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let all = bad_peer::cases();
    if arguments.list {
        case::list(&all);
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = case::select(&all, &arguments.cases)?;
    let setting = setting(&arguments)?;
    let run = |case: &Case<Setting>| bad_peer::run(case, &setting);
    let none_failed = case::run_all(&chosen, run);
    println!("{} bad connections", setting.dials.load(Ordering::Relaxed));
    Ok(if none_failed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn setting(arguments: &Arguments) -> Result<Setting> {
    let (Some(addr), Some(nqn)) = (arguments.addr, &arguments.nqn) else {
        unreachable!("the command line demands them");
    };
    Ok(Setting {
        provider: arguments.provider.open()?,
        remote: SocketAddr::new(addr, arguments.port),
        subnqn: Nqn::parse(nqn).map_err(|error| anyhow!("--nqn {nqn}: {error:?}"))?,
        nsid: arguments.nsid,
        patience: Duration::from_secs(arguments.patience),
        seed: arguments.seed,
        random_capsules: arguments.random_capsules,
        dials: Arc::default(),
    })
}
