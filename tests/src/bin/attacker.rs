//! `cairn-attacker`: attacker in its own process, for RDMA adapters and virtual machines.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use cairn_tests::attacker::{Attack, Attacker};
use cairn_tests::provider::ProviderName;
use clap::Parser;

/// Pause after each step, so that the target runs even on a machine with one processor.
const PAUSE: Duration = Duration::from_micros(100);

/// Attacks a target for some time.
///
/// Prints "ready" once the attack has started, and finally the numbers of attempts started and
/// finished.
#[derive(Debug, Parser)]
struct Arguments {
    #[arg(long, value_enum, default_value = "verbs")]
    provider: ProviderName,
    #[arg(long)]
    addr: IpAddr,
    #[arg(long, default_value_t = 4420)]
    port: u16,
    #[arg(long)]
    from: IpAddr,
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// File whose creation ends the attack early
    #[arg(long)]
    until: Option<PathBuf>,
    #[arg(value_enum)]
    kind: Attack,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let provider = arguments.provider.open()?;
    let remote = SocketAddr::new(arguments.addr, arguments.port);
    let mut attacker = Attacker::new(arguments.kind, &*provider, remote, arguments.from);
    let end = Instant::now() + Duration::from_secs(arguments.seconds);
    let is_over = || arguments.until.as_ref().is_some_and(|file| file.exists());
    let mut ready = None;
    while Instant::now() < end && !is_over() {
        attacker.turn(Instant::now());
        if ready.is_none() && attacker.is_under_way() {
            println!("ready");
            ready = Some((Instant::now(), attacker.begun, attacker.ended));
        }
        thread::sleep(PAUSE);
    }
    println!("begun {}", attacker.begun);
    println!("ended {}", attacker.ended);
    let (since, begun, ended) = ready.context("there was no attack")?;
    let each_second = |count: u64| count as f64 / since.elapsed().as_secs_f64();
    let (begun, ended) = (attacker.begun - begun, attacker.ended - ended);
    println!(
        "since ready, a second: begun {:.0}, ended {:.0}",
        each_second(begun),
        each_second(ended)
    );
    Ok(())
}
