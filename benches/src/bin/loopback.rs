//! Benchmark of target and host in one process over the loopback provider. The output format is
//! that of `cairn-initiator bench --output-format=json`.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, ensure};
use cairn_bench::{Format, Job, NvmeLanes, report, run};
use cairn_config::{Config, Flags};
use cairn_initiator::{Host, HostOptions, Identity};
use cairn_rdma::Provider;
use cairn_rdma::loopback::Loopback;
use cairn_target::Target;
use clap::Parser;
use nvme_proto::wire::Nqn;

const SUBSYSTEM: &str = "nqn.2026-01.org.example:bench";
const HOST: &str = "nqn.2026-01.org.example:bench-host";

const HOST_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

/// Measures the logic of target and host, without a network.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Disk, as --export of cairn-target
    #[arg(long)]
    export: String,
    /// Core of the target's reactor
    #[arg(long)]
    core: usize,
    /// Write the whole disk first
    #[arg(long)]
    fill: bool,
    /// Job, as KEY=VALUE with fio's keys
    keys: Vec<String>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let loopback: Arc<dyn Provider> = Arc::<Loopback>::default();
    let target = Target::start(config(&args)?, vec![Arc::clone(&loopback)])?;
    let lanes = lanes(&*loopback, &target)?;
    if args.fill {
        let keys = ["rw=write", "bs=1m", "iodepth=4"].map(str::to_owned);
        measure(&lanes, &keys)?;
    }
    print!("{}", measure(&lanes, &args.keys)?);
    target.stop().map_err(anyhow::Error::msg)
}

fn config(args: &Args) -> Result<Config> {
    let (export, core) = (&args.export, args.core);
    let text = format!(
        "[target]\ncores = [{core}]\n\
         [[listener]]\naddress = \"192.0.2.1\"\nprovider = \"auto\"\n\
         [[subsystem]]\nnqn = \"{SUBSYSTEM}\"\nallow_any_host = true\n\
         [[subsystem.namespace]]\nnsid = 1\nexport = \"{export}\"\nblock_size = 4096\n"
    );
    Config::parse("the configuration", &text, &Flags::default()).map_err(anyhow::Error::msg)
}

fn lanes(provider: &dyn Provider, target: &Target) -> Result<NvmeLanes> {
    let nqn = |name| Nqn::parse(name).expect("these names are right");
    let options = HostOptions {
        local: Some(HOST_ADDRESS),
        kato_ms: 0,
        ..HostOptions::new(
            target.addresses()[0],
            nqn(SUBSYSTEM),
            Identity::named(nqn(HOST)),
        )
    };
    let mut host = Host::connect(provider, options.clone())?;
    let namespace = host.open_namespace(1)?;
    let lanes = NvmeLanes {
        device: Arc::clone(host.device()),
        options,
        format: Format::of(&namespace, &host),
        namespace,
        reset_interval: None,
        on_event: |_| {},
    };
    host.shutdown()?;
    Ok(lanes)
}

fn measure(lanes: &NvmeLanes, keys: &[String]) -> Result<String> {
    let mut job = Job::default();
    for key in keys {
        let (key, value) = key.split_once('=').unwrap_or((key, "1"));
        job.set(key, value).map_err(anyhow::Error::msg)?;
    }
    let result = run(&job, lanes, &AtomicBool::new(false), &mut ()).map_err(anyhow::Error::msg)?;
    ensure!(
        result.is_success(),
        "the job failed:\n{}",
        report::text(&result)
    );
    Ok(report::json(&result))
}
