//! Throughput by number of queue pairs, at a fixed total queue depth.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use cairn_initiator::{Buffer, Data, Host, Ticket, command};
use cairn_roce::Soft;

use crate::hosts::{self, Wish};
use crate::report::{DepthRow, Report};
use crate::served::{Core, NAMESPACE_BYTES, Program, Served, Usage, on_core};

const BYTES: u32 = 4096;
const BLOCKS: u64 = NAMESPACE_BYTES / BYTES as u64;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) depth: u16,
    pub(crate) hosts: u16,
    pub(crate) seconds: Duration,
}

pub(crate) fn measure(
    program: &Program,
    load: &Load,
    queue_pairs: &[u16],
    report: &mut Report,
) -> Result<()> {
    for &queue_pairs in queue_pairs {
        let hosts = load.hosts.min(queue_pairs);
        let served = Served::start(program, "queue_depth = 256\nio_queues = 512")?;
        let row = on_core(Core::First, || run(&served, load, hosts, queue_pairs))?;
        report.depth.push(row);
    }
    Ok(())
}

fn run(served: &Served, load: &Load, hosts: u16, queue_pairs: u16) -> Result<DepthRow> {
    let soft = Soft::default();
    let wish = Wish {
        io_queues: queue_pairs / hosts,
        depth: load.depth,
        kato_ms: 0,
    };
    let mut commands = Commands::new(hosts::connect(&soft, hosts, wish)?, load.depth)?;
    commands.run(load.seconds / 4)?;
    let usage = || anyhow::Ok([served.usage()?, Usage::of(std::process::id())?]);
    let before = (usage()?, packets(&soft));
    let begun = Instant::now();
    let done = commands.run(load.seconds)?;
    let seconds = begun.elapsed().as_secs_f64();
    let after = (usage()?, packets(&soft));
    let cpu = |side: usize| (after.0[side].cpu - before.0[side].cpu).as_secs_f64() / done as f64;
    let row = DepthRow {
        queue_pairs,
        hosts,
        depth: load.depth,
        iops: done as f64 / seconds,
        packets: (after.1 - before.1) as f64 / done as f64,
        target_cpu_us: cpu(0) * 1e6,
        host_cpu_us: cpu(1) * 1e6,
    };
    hosts::disconnect(commands.hosts)?;
    Ok(row)
}

fn packets(soft: &Soft) -> u64 {
    let counters = soft.counters();
    let each = counters.iter().map(|(_, c)| c.sent_pkts + c.rcvd_pkts);
    each.sum()
}

struct Commands {
    hosts: Vec<Host>,
    buffers: Vec<Vec<Buffer>>,
    flights: Vec<Option<Flight>>,
    turn: usize,
    random: u64,
}

#[derive(Clone, Copy)]
struct Flight {
    host: usize,
    ticket: Ticket,
}

impl Commands {
    fn new(hosts: Vec<Host>, depth: u16) -> Result<Self> {
        let bytes = usize::from(depth) * BYTES as usize;
        let split = |host: &Host| Ok(host.buffer(bytes)?.split(BYTES as usize));
        let buffers: Result<_> = hosts.iter().map(split).collect();
        Ok(Self {
            buffers: buffers?,
            hosts,
            flights: vec![None; depth.into()],
            turn: 0,
            random: 0x2545_f491_4f6c_dd1d,
        })
    }

    fn run(&mut self, length: Duration) -> Result<u64> {
        let end = Instant::now() + length;
        let mut done = 0;
        let mut more = true;
        for slot in 0..self.flights.len() {
            self.submit(slot)?;
        }
        while more || self.flights.iter().any(Option::is_some) {
            let mut progress = false;
            for host in &mut self.hosts {
                progress |= host.poll();
            }
            if !progress {
                more = more && Instant::now() < end;
                continue;
            }
            for slot in 0..self.flights.len() {
                if self.land(slot)? {
                    done += 1;
                    if more {
                        self.submit(slot)?;
                    }
                }
            }
            more = more && Instant::now() < end;
        }
        Ok(done)
    }

    fn land(&mut self, slot: usize) -> Result<bool> {
        let Some(flight) = self.flights[slot] else {
            return Ok(false);
        };
        let Some(ended) = self.hosts[flight.host].take(flight.ticket) else {
            return Ok(false);
        };
        let status = ended.answer?.cqe.status();
        ensure!(status.is_success(), "a read failed: {status}");
        self.flights[slot] = None;
        self.buffers[flight.host].extend(ended.buffer);
        Ok(true)
    }

    fn submit(&mut self, slot: usize) -> Result<()> {
        let host = self.turn % self.hosts.len();
        let queue = self.hosts[host].io_queue(self.turn / self.hosts.len());
        self.turn += 1;
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let sqe = command::read(1, self.random % BLOCKS, 1);
        let buffer = self.buffers[host].pop().expect("as many as commands");
        let data = Data::whole(buffer);
        let ticket = self.hosts[host].submit_on(queue, sqe, data)?;
        self.flights[slot] = Some(Flight { host, ticket });
        Ok(())
    }
}
