//! Time from the loss of a path until the other path has acknowledged the lost path's writes.
//! Samples alternate between paths to one target, which resets the lost controller, and paths to
//! two targets, where writes wait for KATO and CQT.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cairn_config::{Config, Flags};
use cairn_initiator::multipath::{Multipath, MultipathOptions};
use cairn_initiator::{Data, HostOptions, Identity, Recovery, command};
use cairn_rdma::Provider;
use cairn_rdma::loopback::Loopback;
use cairn_roce::{Blackhole, FaultOptions, Network, Soft, SoftOptions};
use cairn_target::Target;
use clap::Parser;
use nvme_proto::wire::Nqn;

const SUBSYSTEM: &str = "nqn.2026-01.org.example:bench";
const HOST: &str = "nqn.2026-01.org.example:bench-host";
/// Last bytes of the host's addresses. Targets have 1, 2, ...
const HOST_ENDS: [u8; 2] = [11, 12];
const BLOCK: u32 = 4096;
const BOOTSTRAPS: usize = 2000;

/// Measures how long writes of a lost path wait.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Pairs of samples
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// KATO in milliseconds
    #[arg(long, default_value_t = 1000)]
    kato_ms: u32,
    /// Writes in flight when the path is lost
    #[arg(long, default_value_t = 32)]
    depth: u16,
    /// Drop all packets of the path (RoCE in user space) instead of removing the device
    #[arg(long)]
    silent: bool,
}

struct Fabric {
    provider: Arc<dyn Provider>,
    network: [u8; 3],
    lose: Box<dyn Fn(Ipv4Addr)>,
}

impl Fabric {
    fn new(silent: bool) -> Self {
        if silent {
            let blackhole = Blackhole::inactive();
            let faults = FaultOptions {
                blackhole: Some(blackhole),
                ..FaultOptions::default()
            };
            let options = SoftOptions {
                network: Network::Bad(Box::default(), faults),
                ..SoftOptions::default()
            };
            // The previous sample's ports may still be in use.
            static SAMPLES: AtomicU8 = AtomicU8::new(1);
            let sample = SAMPLES.fetch_add(1, Ordering::Relaxed);
            return Self {
                provider: Arc::new(Soft::new(options)),
                network: [127, sample, std::process::id() as u8],
                lose: Box::new(move |address| blackhole.begin(address)),
            };
        }
        let loopback = Arc::<Loopback>::default();
        Self {
            provider: Arc::clone(&loopback) as _,
            network: [192, 0, 2],
            lose: Box::new(move |address| loopback.unplug(address.into())),
        }
    }

    fn address(&self, end: u8) -> Ipv4Addr {
        let [a, b, c] = self.network;
        Ipv4Addr::new(a, b, c, end)
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        with.push(sample(&args, 1)?);
        without.push(sample(&args, 2)?);
    }
    let ratios: Vec<f64> = with.iter().zip(&without).map(|(a, b)| b / a).collect();
    row("with Cross-Controller Reset", "ms", &with);
    row("without", "ms", &without);
    row("ratio of pairs", "", &ratios);
    Ok(())
}

fn sample(args: &Args, targets: u8) -> Result<f64> {
    let fabric = Fabric::new(args.silent);
    let provider = &fabric.provider;
    let started = (1..=targets).map(|number| {
        let config = config(fabric.address(number))?;
        Ok(Target::start(config, vec![Arc::clone(provider)])?)
    });
    let targets = started.collect::<Result<Vec<Target>>>()?;
    let nqn = |name| Nqn::parse(name).expect("these names are right");
    let paths = HOST_ENDS
        .iter()
        .enumerate()
        .map(|(index, end)| HostOptions {
            local: Some(IpAddr::from(fabric.address(*end))),
            kato_ms: args.kato_ms,
            recovery: Recovery::NONE,
            ..HostOptions::new(
                targets[index % targets.len()].addresses()[0],
                nqn(SUBSYSTEM),
                Identity::named(nqn(HOST)),
            )
        });
    let mut disk = Multipath::connect(&**provider, paths, MultipathOptions::new(1))?;
    let ready = |disk: &mut Multipath| disk.paths().all(|path| path.usable).then_some(());
    disk.wait_until("both paths", ready)?;
    let took = lose(args, &fabric, &mut disk)?;
    drop(disk);
    for target in targets {
        target.stop().map_err(anyhow::Error::msg)?;
    }
    Ok(took.as_secs_f64() * 1e3)
}

fn lose(args: &Args, fabric: &Fabric, disk: &mut Multipath) -> Result<Duration> {
    disk.set_timeout(Duration::from_secs(60));
    let tickets = (0..args.depth).map(|block| {
        let buffer = disk.buffer(BLOCK as usize)?;
        let write = command::write(1, block.into(), 1);
        let ticket = disk.submit(write, Data::whole(buffer));
        ticket.map_err(|unsent| unsent.error)
    });
    let tickets = tickets.collect::<Result<Vec<_>, _>>()?;
    let in_flight = disk.paths().next().context("two paths")?.outstanding;
    ensure!(in_flight > 0, "no write is on the path to lose");
    (fabric.lose)(fabric.address(HOST_ENDS[0]));
    let lost = Instant::now();
    for ticket in tickets {
        let response = disk.wait(ticket).answer?;
        ensure!(response.cqe.status().is_success(), "a write failed");
    }
    Ok(lost.elapsed())
}

fn config(address: Ipv4Addr) -> Result<Config> {
    let text = format!(
        "[[listener]]\naddress = \"{address}\"\nprovider = \"auto\"\n\
         [[subsystem]]\nnqn = \"{SUBSYSTEM}\"\nallow_any_host = true\n\
         [[subsystem.namespace]]\nnsid = 1\nexport = \"mem:1MiB\"\nblock_size = {BLOCK}\n\
         uuid = \"5f1c7f3e-0f57-4b8c-9d6c-6d0b2c1f3a11\"\n"
    );
    Config::parse("the configuration", &text, &Flags::default()).map_err(anyhow::Error::msg)
}

fn row(name: &str, unit: &str, samples: &[f64]) {
    let mut random = fastrand::Rng::with_seed(1);
    let mut resampled: Vec<f64> = (0..BOOTSTRAPS)
        .map(|_| {
            median(
                samples
                    .iter()
                    .map(|_| samples[random.usize(..samples.len())]),
            )
        })
        .collect();
    resampled.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| resampled[(share * (BOOTSTRAPS - 1) as f64) as usize];
    let (middle, low, high) = (median(samples.iter().copied()), at(0.025), at(0.975));
    println!("{name:28} {middle:10.2} {unit:2} ({low:.2} to {high:.2})");
}

fn median(samples: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = samples.collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
