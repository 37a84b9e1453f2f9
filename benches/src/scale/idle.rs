//! Measurements of an idle target.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use cairn_initiator::{Data, Host, command};
use cairn_roce::Soft;

use crate::hosts::{self, Wish};
use crate::report::{Idle, Report, Start};
use crate::served::{Program, Served};

const IO_QUEUES: u16 = 4;
const KATO_MS: u32 = 5000;
const QUIET: Duration = Duration::from_millis(250);
const TRIES: usize = 16;
const STARTS: usize = 5;

pub(crate) fn start(program: &Program, report: &mut Report) -> Result<()> {
    let mut best: Option<Start> = None;
    for _ in 0..STARTS {
        let served = Served::start(program, "")?;
        let seen = Start {
            listening_in: served.started_in,
            memory: served.memory()?,
            memory_connected: 0,
            pinned: served.pinned()?,
        };
        let soft = Soft::default();
        let wish = Wish {
            io_queues: 1,
            depth: 127,
            kato_ms: 0,
        };
        let hosts = hosts::connect(&soft, 1, wish)?;
        let seen = Start {
            memory_connected: served.memory()?,
            ..seen
        };
        hosts::disconnect(hosts)?;
        if best.is_none_or(|best| seen.listening_in < best.listening_in) {
            best = Some(seen);
        }
    }
    report.start = best;
    Ok(())
}

pub(crate) fn measure(
    program: &Program,
    count: u16,
    seconds: Duration,
    report: &mut Report,
) -> Result<()> {
    let served = Served::start(program, "")?;
    let soft = Soft::default();
    let wish = Wish {
        io_queues: IO_QUEUES,
        depth: 127,
        kato_ms: KATO_MS,
    };
    let mut hosts = hosts::connect(&soft, count, wish)?;
    let length = (seconds * 4).max(Duration::from_millis(u64::from(KATO_MS)));
    keep_alive(&mut hosts, Duration::from_secs(1));
    let before = served.usage()?;
    let begun = Instant::now();
    keep_alive(&mut hosts, length);
    let elapsed = begun.elapsed().as_secs_f64();
    let after = served.usage()?;
    report.idle = Some(Idle {
        hosts: count,
        io_queues: IO_QUEUES,
        kato_ms: KATO_MS,
        cores: (after.cpu - before.cpu).as_secs_f64() / elapsed,
        wake_ups: (after.sleeps - before.sleeps) as f64 / elapsed,
        first_command: commands(&mut hosts, QUIET)?,
        busy_command: commands(&mut hosts, Duration::ZERO)?,
    });
    hosts::disconnect(hosts)
}

fn keep_alive(hosts: &mut [Host], length: Duration) {
    let end = Instant::now() + length;
    while Instant::now() < end {
        for host in &mut *hosts {
            host.poll();
        }
        std::thread::sleep(Duration::from_millis(20).min(end - Instant::now().min(end)));
    }
}

fn commands(hosts: &mut [Host], quiet: Duration) -> Result<Duration> {
    let mut buffer = hosts[0].buffer(4096)?;
    let mut times = Vec::with_capacity(TRIES);
    for _ in 0..TRIES {
        keep_alive(hosts, quiet);
        let begun = Instant::now();
        let read = command::read(1, 0, 1);
        let response = hosts[0].run(read, Data::start_of(&mut buffer, 4096))?;
        ensure!(response.cqe.status().is_success(), "a read failed");
        times.push(begun.elapsed());
    }
    times.sort();
    Ok(times[TRIES / 2])
}
