//! Time from the loss of a path until the other path has acknowledged the lost path's writes.
//! Samples alternate between paths to one target, which resets the lost controller, and paths to
//! two targets, where writes wait for KATO and CQT.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cairn_config::{Config, Flags};
use cairn_initiator::multipath::{Multipath, MultipathOptions};
use cairn_initiator::{Data, HostOptions, Identity, Recovery, command};
use cairn_rdma::Provider;
use cairn_rdma::loopback::Loopback;
use cairn_target::Target;
use clap::Parser;
use nvme_proto::wire::Nqn;

const SUBSYSTEM: &str = "nqn.2026-01.org.example:bench";
const HOST: &str = "nqn.2026-01.org.example:bench-host";
const LOCAL: [[u8; 4]; 2] = [[192, 0, 2, 11], [192, 0, 2, 12]];
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

fn sample(args: &Args, targets: usize) -> Result<f64> {
    let loopback = Arc::<Loopback>::default();
    let provider: Arc<dyn Provider> = Arc::clone(&loopback) as _;
    let started = (1..=targets).map(|number| {
        let started = Target::start(config(number)?, vec![Arc::clone(&provider)])?;
        Ok(started)
    });
    let targets = started.collect::<Result<Vec<Target>>>()?;
    let nqn = |name| Nqn::parse(name).expect("these names are right");
    let paths = LOCAL.iter().enumerate().map(|(index, local)| HostOptions {
        local: Some(IpAddr::from(*local)),
        kato_ms: args.kato_ms,
        recovery: Recovery::NONE,
        ..HostOptions::new(
            targets[index % targets.len()].addresses()[0],
            nqn(SUBSYSTEM),
            Identity::named(nqn(HOST)),
        )
    });
    let mut disk = Multipath::connect(&*provider, paths, MultipathOptions::new(1))?;
    let ready = |disk: &mut Multipath| disk.paths().all(|path| path.usable).then_some(());
    disk.wait_until("both paths", ready)?;
    let took = lose(args, &loopback, &mut disk)?;
    drop(disk);
    for target in targets {
        target.stop().map_err(anyhow::Error::msg)?;
    }
    Ok(took.as_secs_f64() * 1e3)
}

fn lose(args: &Args, loopback: &Loopback, disk: &mut Multipath) -> Result<Duration> {
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
    loopback.unplug(IpAddr::from(LOCAL[0]));
    let lost = Instant::now();
    for ticket in tickets {
        let response = disk.wait(ticket).answer?;
        ensure!(response.cqe.status().is_success(), "a write failed");
    }
    Ok(lost.elapsed())
}

fn config(number: usize) -> Result<Config> {
    let text = format!(
        "[[listener]]\naddress = \"192.0.2.{number}\"\nprovider = \"auto\"\n\
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
