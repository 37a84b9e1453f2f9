//! The command `link`: measures an RDMA connection between two machines without NVMe.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clap::Args;

use super::Result;
use super::address::local_end;
use super::number::number_in;
use super::output::{Output, print, table};
use super::raw::{DATA_BYTES, DEPTH, Link};
use super::responder::Responder;
use super::samples::{Effort, Samples};
use cairn_base::{Traddr, TraddrError, Trid};
use cairn_bench::object::Object;
use cairn_bench::report::decimal;
use cairn_initiator::providers::{Provided, RdmaOptions};

/// Default port, as in perftest.
const PORT: u16 = 18515;
pub(super) const SMALL: u32 = 4096;

#[derive(Debug, Args)]
pub(super) struct LinkArgs {
    /// Address of the other end, which runs `link --listen`
    #[arg(
        short = 'a',
        long,
        value_name = "ADDR[:PORT]",
        value_parser = parse_place,
        required_unless_present = "listen"
    )]
    traddr: Option<SocketAddr>,
    /// Run as the other end, and listen at this address
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = parse_place, conflicts_with = "traddr")]
    listen: Option<SocketAddr>,
    /// With --listen, exit after the first connection
    #[arg(long, requires = "listen")]
    once: bool,
    /// Time for each measurement, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = |text: &str| number_in::<u64>(text, 1..=u64::MAX))]
    time: u64,
    /// Address of this machine to connect from
    #[arg(short = 'w', long, value_name = "ADDR")]
    host_traddr: Option<Traddr>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    rdma: RdmaOptions,
}

pub(super) fn parse_place(text: &str) -> Result<SocketAddr> {
    let address = Trid::parse(text, PORT).and_then(Trid::resolve);
    address.map_err(|error| match error {
        TraddrError::NotAnAddress => {
            format!("{text:?} is not an IP address, with or without a port")
        }
        _ => format!("{text:?}: {error}"),
    })
}

impl LinkArgs {
    pub(super) fn run(&self) -> Result<()> {
        if let Some(address) = self.listen {
            let responder = Responder::open(self.rdma, address)?;
            print(&format!("answering at {}", responder.address()));
            return responder.run(self.once);
        }
        let remote = self.traddr.expect("one of the two is given");
        let (remote, local) = local_end("-a", remote, self.host_traddr)?;
        let provided = Provided::choose(self.rdma, remote, local)?;
        let mut link = Link::to_responder(&provided.device, remote)?;
        let measured = Measured::of(
            &mut link,
            Effort {
                time: Duration::from_millis(self.time),
                times_min: 20,
                times_max: 10_000,
            },
        )?;
        link.disconnect()?;
        let head = format!("{remote}, by {}\n\n", provided.name);
        self.output
            .show(&measured.object(), |_| head + &measured.text());
        Ok(())
    }
}

pub(super) struct Measured {
    /// Latencies of SEND with echo, RDMA WRITE and RDMA READ.
    pub(super) latencies: [Samples; 3],
    pub(super) bandwidths: [(&'static str, f64); 2],
}

impl Measured {
    pub(super) fn of(link: &mut Link, effort: Effort) -> Result<Self> {
        assert_eq!(
            (DATA_BYTES, DEPTH),
            (128 << 10, 8),
            "as the words below say"
        );
        Ok(Self {
            latencies: latencies(link, effort)?,
            bandwidths: [
                (
                    "RDMA WRITEs of 128 KiB, 8 at a time",
                    link.bandwidth(false, effort.time)?,
                ),
                (
                    "RDMA READs of 128 KiB, 8 at a time",
                    link.bandwidth(true, effort.time)?,
                ),
            ],
        })
    }

    fn object(&self) -> Object {
        Object::new()
            .with_list("latency", self.latencies.iter().map(Samples::object))
            .with_list("bandwidth", bandwidth_objects(&self.bandwidths))
    }

    fn text(&self) -> String {
        format!(
            "{}\n{}",
            latency_table(&self.latencies),
            bandwidth_lines(&self.bandwidths)
        )
    }
}

fn latencies(link: &mut Link, effort: Effort) -> Result<[Samples; 3]> {
    let timed = |once: &mut dyn FnMut() -> Result<()>| {
        let begun = Instant::now();
        once().map(|()| begun.elapsed())
    };
    Ok([
        Samples::of(
            "bare SEND and its echo",
            64,
            "SEND there, SEND back, by two programs",
            effort,
            || timed(&mut || link.echo(&[1; 64]).map(drop)),
        )?,
        Samples::of(
            "bare RDMA WRITE",
            SMALL,
            "data there, acknowledgement back",
            effort,
            || timed(&mut || link.write(SMALL)),
        )?,
        Samples::of(
            "bare RDMA READ",
            SMALL,
            "request there, data back",
            effort,
            || timed(&mut || link.read(SMALL)),
        )?,
    ])
}

pub(super) fn latency_table(latencies: &[Samples]) -> String {
    let head = [
        "latency",
        "bytes",
        "min us",
        "p50 us",
        "p99 us",
        "samples",
        "what it takes",
    ];
    table(head, latencies.iter().map(Samples::cells))
}

pub(super) fn bandwidth_lines(bandwidths: &[(&'static str, f64)]) -> String {
    let width = bandwidths.iter().map(|(what, _)| what.len()).max();
    let width = width.unwrap_or(0);
    let lines = bandwidths
        .iter()
        .map(|(what, bytes)| format!("{what:<width$}  {}B/s\n", decimal(*bytes)));
    lines.collect()
}

pub(super) fn bandwidth_objects(
    bandwidths: &[(&'static str, f64)],
) -> impl Iterator<Item = Object> {
    bandwidths.iter().map(|(what, bytes)| {
        Object::new()
            .with("what", what)
            .with("bytes_per_second", *bytes as u64)
    })
}
