//! One sample: what the two ends said of one run of one cell.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::cpu_time::CpuTime;
use crate::results::{Better, Metric};

/// fio's JSON, as far as it is read here.
#[derive(Debug, Deserialize)]
struct Report {
    jobs: Vec<Job>,
}

#[derive(Debug, Deserialize)]
struct Job {
    error: i32,
    read: Direction,
    write: Direction,
    job_runtime: f64,
    usr_cpu: f64,
    sys_cpu: f64,
}

#[derive(Debug, Deserialize)]
struct Direction {
    total_ios: u64,
    iops: f64,
    bw_bytes: f64,
    clat_ns: Clat,
}

#[derive(Debug, Deserialize)]
struct Clat {
    percentile: Option<Percentiles>,
}

#[derive(Debug, Deserialize)]
struct Percentiles {
    #[serde(rename = "50.000000")]
    p50: f64,
    #[serde(rename = "99.000000")]
    p99: f64,
    #[serde(rename = "99.900000")]
    p999: f64,
}

/// What was measured once.
#[derive(Debug)]
pub(super) struct Sample {
    ios: f64,
    iops: f64,
    bytes_per_s: f64,
    percentiles: Percentiles,
    target: CpuTime,
    runtime: Duration,
    host_cpu: Duration,
    /// What the target's RoCE endpoints counted, by name.
    counters: Vec<(String, u64)>,
}

impl Sample {
    /// From the host's report, what the target's threads had of the processor, and its log.
    pub(super) fn read(report: &str, target: CpuTime, target_log: &str) -> Result<Self> {
        let report: Report = serde_json::from_str(report)?;
        let job = report.jobs.into_iter().next().context("no job")?;
        ensure!(job.error == 0, "error {}", job.error);
        let ios = (job.read.total_ios + job.write.total_ios) as f64;
        ensure!(ios > 0.0, "nothing was done");
        let (iops, bytes_per_s) = (
            job.read.iops + job.write.iops,
            job.read.bw_bytes + job.write.bw_bytes,
        );
        // Of mixed jobs, the reads': they are the most.
        let percentiles = job.read.clat_ns.percentile.or(job.write.clat_ns.percentile);
        ensure!(job.job_runtime > 0.0, "no time has passed");
        let runtime = Duration::from_secs_f64(job.job_runtime / 1e3);
        let host_cpu = runtime.mul_f64((job.usr_cpu + job.sys_cpu).max(0.0) / 100.0);
        Ok(Self {
            ios,
            iops,
            bytes_per_s,
            percentiles: percentiles.context("no percentiles")?,
            target,
            runtime,
            host_cpu,
            counters: counters(target_log),
        })
    }

    /// As figures.
    pub(super) fn metrics(&self) -> Vec<Metric> {
        use Better::{Higher, Lower};
        let mut metrics = vec![
            Metric::once("IOPS", "1/s", Higher, self.iops),
            Metric::once("bandwidth", "MB/s", Higher, self.bytes_per_s / 1e6),
            Metric::once("p50", "us", Lower, self.percentiles.p50 / 1e3),
            Metric::once("p99", "us", Lower, self.percentiles.p99 / 1e3),
            Metric::once("p99.9", "us", Lower, self.percentiles.p999 / 1e3),
        ];
        for (name, time) in [
            ("target CPU", self.target.on_cpu),
            ("host CPU", self.host_cpu),
        ] {
            let us = time.as_secs_f64() * 1e6 / self.ios;
            metrics.push(Metric::once(name, "us/IO", Lower, us));
        }
        for (counter, name) in COUNTERS {
            if let Some((_, value)) = self.counters.iter().find(|(own, _)| own == counter) {
                metrics.push(Metric::once(name, "1/IO", Lower, *value as f64 / self.ios));
            }
        }
        let percent = self.target.waited.as_secs_f64() * 100.0 / self.runtime.as_secs_f64();
        metrics.push(Metric::once("disturbed", "%", Lower, percent));
        metrics
    }
}

/// Counters of the target that have a column, and its head.
const COUNTERS: [(&str, &str); 2] = [("sent_pkts", "sent"), ("rcvd_pkts", "received")];

/// What the target's last words say that its RoCE endpoints counted.
fn counters(log: &str) -> Vec<(String, u64)> {
    let lines = log
        .lines()
        .filter_map(|line| line.split_once("RoCE has counted "));
    let pairs = lines.flat_map(|(_, rest)| rest.split(' '));
    let mut counters: Vec<(String, u64)> = Vec::new();
    for (name, value) in pairs.filter_map(|pair| pair.split_once('=')) {
        let Ok(value) = value.parse::<u64>() else {
            continue;
        };
        match counters.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += value,
            None => counters.push((name.to_owned(), value)),
        }
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{"jobs": [{"error": 0, "job_runtime": 1000, "usr_cpu": 50.0, "sys_cpu": 25.0,
        "read": {"total_ios": 700, "iops": 700.0, "bw_bytes": 2867200, "clat_ns":
            {"min": 1, "percentile": {"50.000000": 10000, "99.000000": 20000, "99.900000": 30000}}},
        "write": {"total_ios": 300, "iops": 300.0, "bw_bytes": 1228800, "clat_ns": {"min": 0}}}]}"#;

    const LOG: &str = "INFO connected host=\"x\" qid=1\n\
        2026 INFO RoCE has counted sent_pkts=2500 rcvd_pkts=1000 device=\"soft-127.0.0.1\"\n\
        2026 INFO RoCE has counted sent_pkts=500 device=\"soft-127.0.0.9\"\n";

    const TIME: CpuTime = CpuTime {
        on_cpu: Duration::from_millis(5),
        waited: Duration::from_millis(100),
    };

    fn value(metrics: &[Metric], name: &str) -> f64 {
        let metric = metrics.iter().find(|metric| metric.name == name);
        metric.unwrap_or_else(|| panic!("no {name}")).median()
    }

    #[test]
    fn both_ends_are_counted_per_io() {
        let sample = Sample::read(REPORT, TIME, LOG).unwrap();
        let metrics = sample.metrics();
        assert_eq!(metrics[0].name, "IOPS");
        for (name, expected) in [
            ("IOPS", 1000.0),
            ("bandwidth", 4.096),
            ("p50", 10.0),
            ("p99.9", 30.0),
            ("target CPU", 5.0),
            ("host CPU", 750.0),
            ("sent", 3.0),
            ("received", 1.0),
            ("disturbed", 10.0),
        ] {
            assert!((value(&metrics, name) - expected).abs() < 1e-9, "{name}");
        }
    }

    #[test]
    fn reports_that_say_nothing_are_refused() {
        let idle = REPORT
            .replace("total_ios\": 700", "total_ios\": 0")
            .replace("total_ios\": 300", "total_ios\": 0");
        let failed = REPORT.replace("\"error\": 0", "\"error\": 5");
        for (report, hint) in [
            (idle.as_str(), "nothing"),
            (&failed, "error 5"),
            ("{", "EOF"),
        ] {
            let error = Sample::read(report, TIME, "").unwrap_err();
            assert!(error.to_string().contains(hint), "{error}");
        }
    }
}
