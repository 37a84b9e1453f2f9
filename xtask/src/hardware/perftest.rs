//! Limits of the adapters, measured by perftest.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::machines::Machines;
use super::ports::TARGET;
use super::target::EVERY;
use crate::results::{Better, Metric};
use crate::vm::host::on_path;
use crate::vm::process::{command, output};

pub(super) const GROUP: &str = "limits by perftest";

const SERVER_START: Duration = Duration::from_secs(30);

pub(super) struct Test {
    program: &'static str,
    bytes: u32,
    is_rate: bool,
}

pub(super) const TESTS: [Test; 3] = [
    Test::new("ib_write_bw", 128 << 10, true),
    Test::new("ib_read_lat", 4096, false),
    Test::new("ib_send_lat", 64, false),
];

impl Test {
    const fn new(program: &'static str, bytes: u32, is_rate: bool) -> Self {
        Self {
            program,
            bytes,
            is_rate,
        }
    }
}

/// Returns the row's name, with the reason if nothing was measured.
pub(super) fn measure(test: &Test, seconds: u64, machines: &Machines) -> (String, Vec<Metric>) {
    let Test { program, bytes, .. } = test;
    let far = machines.far().run(&format!("command -v {program}"));
    if !on_path(program) || far.is_err() {
        let missing = format!("{program} is missing: apt-get install perftest");
        return (missing, Vec::new());
    }
    match run(test, seconds, machines) {
        Ok(metrics) => (format!("{program}, {bytes} bytes"), metrics),
        Err(error) => {
            let reason = format!("{error:#}").replace('\n', "; ");
            (format!("{program} failed: {reason}"), Vec::new())
        }
    }
}

fn run(test: &Test, seconds: u64, machines: &Machines) -> Result<Vec<Metric>> {
    let program = test.program;
    let extent = match test.is_rate {
        true => format!("-D {seconds}"),
        false => "-n 1000".to_owned(),
    };
    let script = format!(
        "exec timeout {} setpriv --pdeathsig KILL {program} -R -F -s {} {extent}",
        seconds + 30,
        test.bytes
    );
    let far = machines.far();
    let server = far.spawn(&script)?;
    let client = || output(command("sh").args(["-ec", &format!("{script} {TARGET}")]));
    let mut said = client();
    // The server may not listen yet.
    let deadline = Instant::now() + SERVER_START;
    while said.is_err() && Instant::now() < deadline && far.is_running(server)? {
        sleep(EVERY);
        said = client();
    }
    far.end(server, "KILL")?;
    metrics_of(test, &said?)
}

fn metrics_of(test: &Test, report: &str) -> Result<Vec<Metric>> {
    let numbers = report.lines().rev().find_map(|line| {
        let words = line.split_whitespace().map(str::parse::<f64>);
        let numbers = words.collect::<Result<Vec<f64>, _>>().ok()?;
        (numbers.first() == Some(&f64::from(test.bytes))).then_some(numbers)
    });
    let numbers = numbers.context("no result in its report")?;
    // Without the clock rate, perftest reports zeros and infinities.
    ensure!(
        numbers.iter().all(|number| number.is_finite()) && numbers.iter().skip(3).any(|&n| n > 0.0),
        "it cannot measure the clock rate of the processor"
    );
    let us = |name, us| Metric::once(name, "us", Better::Lower, us);
    match (test.is_rate, numbers.as_slice()) {
        (true, [_, _, _, average, ..]) => {
            let rate = Metric::once("rate", "MiB/s", Better::Higher, *average);
            Ok(vec![rate])
        }
        (false, [_, _, _, _, p50, _, _, _, p999, ..]) => {
            Ok(vec![us("p50", *p50), us("p99.9", *p999)])
        }
        _ => bail!("an unknown form of report"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_have_rates_or_latencies() {
        let rate = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n \
                    131072     3704             0.00               92.59\t\t   0.000741\n-----\n";
        let latency = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    \
                       t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n \
                       4096    1000          44.24          5500.71      61.05  \t       68.47       \t172.74\t\t104.33 \t\t5500.71\n";
        let values = |test: &Test, report: &str| -> Vec<f64> {
            let metrics = metrics_of(test, report).unwrap();
            metrics.iter().map(Metric::median).collect()
        };
        assert_eq!(values(&TESTS[0], rate), [92.59]);
        assert_eq!(values(&TESTS[1], latency), [61.05, 5500.71]);
        assert!(metrics_of(&TESTS[1], &latency.replace("61.05", "inf")).is_err());
        let without = rate.replace("92.59", "0.00").replace("741", "000");
        assert!(metrics_of(&TESTS[0], &without).is_err());
        assert!(metrics_of(&TESTS[2], latency).is_err());
        assert!(metrics_of(&TESTS[0], "").is_err());
    }
}
