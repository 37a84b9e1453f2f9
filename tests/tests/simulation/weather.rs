use std::net::IpAddr;
use std::panic::{RefUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use cairn_roce::Frame;
use cairn_sim::network::{self, Packet};
use cairn_sim::seeds;

use crate::world;

/// Offset of the BTH byte with congestion marks. Routers may change this byte, so the ICRC omits
/// it.
const BTH_CONGESTION: usize = 4;

pub(crate) type Network = network::Network<Instant, Carried>;

#[derive(Debug, Clone)]
pub(crate) struct Carried(pub(crate) Frame);

impl Packet for Carried {
    type End = IpAddr;

    fn ends(&self) -> (IpAddr, IpAddr) {
        (self.0.source.ip(), self.0.destination)
    }

    fn length(&self) -> usize {
        self.0.bytes.len()
    }

    fn flip(&mut self, bit: usize) -> bool {
        if self.0.destination.is_ipv4() {
            return false;
        }
        if bit / 8 != BTH_CONGESTION {
            self.0.bytes[bit / 8] ^= 1 << (bit % 8);
        }
        true
    }

    fn mark_congested(&mut self) {
        self.0.traffic_class |= 3;
    }
}

pub(crate) fn for_each_seed(test: &str, default: u64, case: impl Fn(u64) + RefUnwindSafe) {
    if seeds::is_replay() {
        let _ = tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
            .without_time()
            .with_writer(std::io::stderr)
            .try_init();
    }
    let command = format!("cargo test -p cairn-tests --test simulation {test}");
    seeds::for_each_seed(&command, default, |seed| {
        if let Err(panic) = catch_unwind(|| case(seed)) {
            world::abandon();
            resume_unwind(panic);
        }
    });
}
