//! Reports in fio's JSON format, which all load generators write.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) ios: f64,
    pub(crate) iops: f64,
    pub(crate) bytes_per_s: f64,
    pub(crate) percentiles: Percentiles,
    pub(crate) slowest_ns: f64,
    pub(crate) runtime: Duration,
    pub(crate) cpu: Duration,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Percentiles {
    #[serde(rename = "50.000000")]
    pub(crate) p50: f64,
    #[serde(rename = "99.000000")]
    pub(crate) p99: f64,
    #[serde(rename = "99.900000")]
    pub(crate) p999: f64,
}

#[derive(Debug, Deserialize)]
struct Document {
    jobs: Vec<Job>,
}

#[derive(Debug, Deserialize)]
struct Job {
    error: i32,
    read: Direction,
    write: Direction,
    job_runtime: f64,
    #[serde(default)]
    usr_cpu: f64,
    #[serde(default)]
    sys_cpu: f64,
}

#[derive(Debug, Deserialize)]
struct Direction {
    total_ios: u64,
    iops: f64,
    bw_bytes: f64,
    clat_ns: Latencies,
}

#[derive(Debug, Deserialize)]
struct Latencies {
    max: f64,
    percentile: Option<Percentiles>,
}

impl Report {
    pub(crate) fn read(json: &str) -> Result<Self> {
        let document: Document = serde_json::from_str(json)?;
        let job = document.jobs.into_iter().next().context("no job")?;
        ensure!(job.error == 0, "error {}", job.error);
        let ios = (job.read.total_ios + job.write.total_ios) as f64;
        ensure!(ios > 0.0, "nothing was done");
        ensure!(job.job_runtime > 0.0, "no time has passed");
        let runtime = Duration::from_secs_f64(job.job_runtime / 1e3);
        let percentiles = job.read.clat_ns.percentile.or(job.write.clat_ns.percentile);
        Ok(Self {
            ios,
            iops: job.read.iops + job.write.iops,
            bytes_per_s: job.read.bw_bytes + job.write.bw_bytes,
            slowest_ns: job.read.clat_ns.max.max(job.write.clat_ns.max),
            percentiles: percentiles.context("no percentiles")?,
            runtime,
            cpu: runtime.mul_f64((job.usr_cpu + job.sys_cpu).max(0.0) / 100.0),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const REPORT: &str = r#"{"jobs": [{"error": 0, "job_runtime": 1000,
        "usr_cpu": 50.0, "sys_cpu": 25.0,
        "read": {"total_ios": 700, "iops": 700.0, "bw_bytes": 2867200, "clat_ns": {"max": 50000,
            "percentile": {"50.000000": 10000, "99.000000": 20000, "99.900000": 30000}}},
        "write": {"total_ios": 300, "iops": 300.0, "bw_bytes": 1228800, "clat_ns": {"max": 60000}}}]}"#;

    #[test]
    fn directions_are_added_up() {
        let report = Report::read(REPORT).unwrap();
        assert_eq!((report.ios, report.iops), (1000.0, 1000.0));
        assert_eq!(report.bytes_per_s, 4_096_000.0);
        assert_eq!(report.percentiles.p999, 30_000.0);
        assert_eq!(report.slowest_ns, 60_000.0);
        assert_eq!(report.cpu, Duration::from_millis(750));
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
            let error = Report::read(report).unwrap_err();
            assert!(error.to_string().contains(hint), "{error}");
        }
    }
}
