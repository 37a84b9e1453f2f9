//! `cairn-multipath-load`: verified I/O for scripts that interrupt paths. It prints path events
//! and, every second, the paths in use.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use cairn_initiator::multipath::{Multipath, MultipathOptions};
use cairn_initiator::{HostOptions, Identity, Recovery};
use cairn_tests::harness::{host_nqn, nqn};
use cairn_tests::load::Load;
use cairn_tests::provider::ProviderName;
use clap::Parser;

/// Runs verified I/O over several paths.
#[derive(Debug, Parser)]
struct Arguments {
    #[arg(long, value_enum, default_value = "soft")]
    provider: ProviderName,
    #[arg(long)]
    nqn: String,
    /// File whose creation ends the I/O; the program then reads back and verifies all data
    #[arg(long)]
    until: PathBuf,
    #[arg(required = true)]
    paths: Vec<SocketAddr>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let provider = arguments.provider.open()?;
    let paths = arguments.paths.iter().map(|&remote| HostOptions {
        kato_ms: 2000,
        recovery: Recovery {
            reconnect_delay: Duration::from_secs(1),
            ..Recovery::default()
        },
        ..HostOptions::new(
            remote,
            nqn(&arguments.nqn),
            Identity::named(host_nqn("multipath")),
        )
    });
    let disk = Multipath::connect(&*provider, paths, MultipathOptions::new(1))
        .context("no path to the namespace")?;
    let mut load = Load::new(disk);
    while !arguments.until.exists() {
        let end = Instant::now() + Duration::from_secs(1);
        let before: Vec<u64> = load.disk.paths().map(|path| path.commands).collect();
        load.run_until("a second", |load| {
            print_events(load);
            Instant::now() >= end
        });
        for (path, before) in load.disk.paths().zip(before) {
            let ana = path.ana.map_or("unknown".to_owned(), |ana| ana.to_string());
            let commands = path.commands - before;
            println!(
                "{} {:?} {ana}: {commands} commands",
                path.remote.ip(),
                path.link
            );
        }
        println!("{} done, {} wait", load.done, load.disk.waiting());
    }
    load.finish().close().context("leaving")?;
    println!("right to the last block");
    Ok(())
}

fn print_events(load: &mut Load) {
    while let Some((path, event)) = load.disk.take_event() {
        println!("path {path}: {event:?}");
    }
}
