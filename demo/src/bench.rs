//! A short benchmark: jobs of a few seconds each, and what they measured.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use cairn_initiator::{Buffer, Data, Host, Ticket, command};
use hdrhistogram::Histogram;

use crate::progress::Progress;
use crate::random::Random;
use crate::{Disk, IO_QUEUE};

/// Which blocks a job goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Random,
    Sequential,
}

/// What one line of the table measures.
#[derive(Debug)]
pub(crate) struct Job {
    name: &'static str,
    order: Order,
    write: bool,
    bytes: u32,
    /// Commands outstanding at a time.
    depth: usize,
}

pub(crate) const JOBS: [Job; 5] = [
    job("4k random read", Order::Random, false, 4096, 1),
    job("4k random read", Order::Random, false, 4096, 32),
    job("4k random write", Order::Random, true, 4096, 32),
    job("128k sequential read", Order::Sequential, false, 131_072, 8),
    job("128k sequential write", Order::Sequential, true, 131_072, 8),
];

const fn job(name: &'static str, order: Order, write: bool, bytes: u32, depth: usize) -> Job {
    Job {
        name,
        order,
        write,
        bytes,
        depth,
    }
}

/// A command on its way.
struct Flight {
    slot: usize,
    ticket: Ticket,
    since: Instant,
}

/// A job at work.
struct Run<'a> {
    job: &'a Job,
    host: &'a mut Host,
    disk: &'a Disk,
    buffer: Buffer,
    random: Random,
    /// The next place of a sequential job, in units of the job's size.
    next: u64,
    flights: Vec<Flight>,
    latencies_ns: Histogram<u64>,
}

impl Job {
    /// Runs for `time`, and gives the line of the table.
    pub(crate) fn run(&self, host: &mut Host, disk: &Disk, time: Duration) -> Result<String> {
        let buffer = host.buffer(self.bytes as usize * self.depth)?;
        let mut random = Random::new();
        let mut data = vec![0; buffer.len()];
        random.fill(&mut data);
        buffer.write(0, &data);
        let mut run = Run {
            job: self,
            host,
            disk,
            buffer,
            random,
            next: 0,
            flights: Vec::with_capacity(self.depth),
            latencies_ns: Histogram::new(3)?,
        };
        let elapsed = run.all(time)?;
        Ok(self.row(&run.latencies_ns, elapsed))
    }

    fn row(&self, latencies_ns: &Histogram<u64>, elapsed: Duration) -> String {
        let us = |quantile| latencies_ns.value_at_quantile(quantile) as f64 / 1e3;
        let iops = latencies_ns.len() as f64 / elapsed.as_secs_f64();
        format!(
            "  {:<22} {:>5} {:>9.0} {:>8.1} {:>9.1} {:>9.1} {:>9.1} {:>9.1}",
            self.name,
            self.depth,
            iops,
            iops * f64::from(self.bytes) / 1e6,
            us(0.5),
            us(0.99),
            us(0.999),
            latencies_ns.max() as f64 / 1e3,
        )
    }
}

/// The line above the table's others.
pub(crate) fn header() -> String {
    format!(
        "  {:<22} {:>5} {:>9} {:>8} {:>9} {:>9} {:>9} {:>9}",
        "", "depth", "IOPS", "MB/s", "p50 us", "p99 us", "p99.9 us", "max us"
    )
}

impl Run<'_> {
    /// The first to the last command; says how long that took.
    fn all(&mut self, time: Duration) -> Result<Duration> {
        let mut progress = Progress::new(format!("{}, depth {}", self.job.name, self.job.depth));
        let started = Instant::now();
        for slot in 0..self.job.depth {
            self.submit(slot)?;
        }
        while !self.flights.is_empty() {
            let slot = self.land()?;
            let elapsed = started.elapsed();
            progress.show(elapsed.as_secs_f64() / time.as_secs_f64(), Instant::now());
            if elapsed < time {
                self.submit(slot)?;
            }
        }
        Ok(started.elapsed())
    }

    fn submit(&mut self, slot: usize) -> Result<()> {
        let bytes = self.job.bytes;
        let places = self.disk.bytes() / u64::from(bytes);
        let place = match self.job.order {
            Order::Random => self.random.next() % places,
            Order::Sequential => self.next % places,
        };
        self.next += 1;
        let blocks = bytes / self.disk.block_bytes;
        let slba = place * u64::from(blocks);
        let sqe = if self.job.write {
            command::write(self.disk.nsid, slba, blocks)
        } else {
            command::read(self.disk.nsid, slba, blocks)
        };
        let data = Data::part_of(&self.buffer, slot * bytes as usize, bytes);
        let since = Instant::now();
        let ticket = self.host.submit(IO_QUEUE, sqe, data)?;
        self.flights.push(Flight {
            slot,
            ticket,
            since,
        });
        Ok(())
    }

    /// Waits for one command, whichever is answered first, and gives its slot.
    fn land(&mut self) -> Result<usize> {
        let flights = &mut self.flights;
        let (flight, response) = self.host.wait_until("a response", |host| {
            let answered = |(at, flight): (usize, &Flight)| {
                let response = host.take(flight.ticket)?;
                Some((at, response))
            };
            let (at, response) = flights.iter().enumerate().find_map(answered)?;
            Some((flights.swap_remove(at), response))
        })?;
        let status = response?.cqe.status();
        ensure!(status.is_success(), "{} failed: {status}", self.job.name);
        self.latencies_ns += flight.since.elapsed().as_nanos() as u64;
        Ok(flight.slot)
    }
}
