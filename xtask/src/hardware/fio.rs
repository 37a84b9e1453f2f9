use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::undo::sh;
use crate::results::{Better, Metric};
use crate::vm::process::{command, output};

#[derive(Debug)]
pub(super) struct Row {
    pub(super) size: String,
    pub(super) depth: u32,
    pub(super) way: &'static str,
}

impl Row {
    pub(super) fn name(&self) -> String {
        format!("{} {} depth {}", self.way, self.size, self.depth)
    }
}

pub(super) fn command_on(device: &Path) -> Command {
    let mut fio = command("fio");
    fio.args([
        "--name=row",
        "--ioengine=libaio",
        "--direct=1",
        "--size=64m",
    ]);
    fio.args(["--eta=never", "--randrepeat=0", "--output-format=json"]);
    fio.arg(format!("--filename={}", device.display()));
    fio
}

pub(super) fn fill(device: &Path) -> Result<()> {
    let mut fio = command_on(device);
    output(fio.args(["--rw=write", "--bs=128k", "--iodepth=8"])).map(drop)
}

pub(super) fn measure(
    row: &Row,
    seconds: u64,
    device: &Path,
    target: Option<u32>,
) -> Result<(Vec<Metric>, u64)> {
    let mut fio = command_on(device);
    fio.arg(format!("--rw=rand{}", row.way));
    fio.arg(format!("--bs={}", row.size));
    fio.arg(format!("--iodepth={}", row.depth));
    fio.args(["--time_based", &format!("--runtime={seconds}")]);
    let hertz: f64 = sh("getconf CLK_TCK")?.trim().parse()?;
    let before = (machine_ticks()?, target.map(process_ticks).transpose()?);
    let json = output(&mut fio)?;
    let after = (machine_ticks()?, target.map(process_ticks).transpose()?);
    let sample =
        Sample::parse(&json).with_context(|| format!("in fio's report of {}", row.name()))?;
    let mut metrics = sample.metrics();
    let mut add_cpu = |name, ticks: u64| {
        let each = ticks as f64 / hertz * 1e6 / sample.ios as f64;
        metrics.push(Metric::once(name, "us/IO", Better::Lower, each));
    };
    add_cpu("CPU of the machine", after.0.saturating_sub(before.0));
    if let (Some(before), Some(after)) = (before.1, after.1) {
        add_cpu("CPU of the target", after.saturating_sub(before));
    }
    Ok((metrics, sample.bytes))
}

struct Sample {
    ios: u64,
    bytes: u64,
    iops: f64,
    p50_us: f64,
    p99_9_us: f64,
}

impl Sample {
    fn parse(json: &str) -> Result<Self> {
        let start = json.find('{').context("no report")?;
        let report: Value = serde_json::from_str(&json[start..])?;
        let job = &report["jobs"][0];
        ensure!(job["error"] == 0, "fio's error is {}", job["error"]);
        let way = ["read", "write"]
            .map(|way| &job[way])
            .into_iter()
            .find(|way| way["total_ios"].as_u64().is_some_and(|ios| ios > 0))
            .context("no I/O was completed: give more --seconds")?;
        let number = |value: &Value, name: &str| {
            value[name]
                .as_f64()
                .with_context(|| format!("{name} is missing"))
        };
        let percentiles = &way["clat_ns"]["percentile"];
        Ok(Self {
            ios: number(way, "total_ios")? as u64,
            bytes: number(way, "io_bytes")? as u64,
            iops: number(way, "iops")?,
            p50_us: number(percentiles, "50.000000")? / 1000.0,
            p99_9_us: number(percentiles, "99.900000")? / 1000.0,
        })
    }

    fn metrics(&self) -> Vec<Metric> {
        vec![
            Metric::once("IOPS", "1/s", Better::Higher, self.iops),
            Metric::once("p50", "us", Better::Lower, self.p50_us),
            Metric::once("p99.9", "us", Better::Lower, self.p99_9_us),
        ]
    }
}

fn machine_ticks() -> Result<u64> {
    parse_machine(&fs::read_to_string("/proc/stat")?)
}

/// Adds user, nice, system, irq and softirq (proc_stat(5)).
fn parse_machine(stat: &str) -> Result<u64> {
    let line = stat.lines().next().context("/proc/stat is empty")?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let busy = [0, 1, 2, 5, 6].map(|at| ticks.get(at).copied().unwrap_or(0));
    Ok(busy.iter().sum())
}

fn process_ticks(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    parse_process(&stat)
}

/// Adds utime and stime, fields 14 and 15 (proc_pid_stat(5)).
fn parse_process(stat: &str) -> Result<u64> {
    let (_, fields) = stat.rsplit_once(") ").context("no name of the process")?;
    let times = fields.split(' ').skip(11).take(2);
    Ok(times.map(str::parse::<u64>).sum::<Result<u64, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_the_numbers_of_the_way_that_moved_data() {
        let json = r#"note
            {"jobs": [{"error": 0, "read": {"total_ios": 0}, "write": {"total_ios": 200,
            "io_bytes": 819200, "iops": 100.5, "clat_ns": {"percentile":
            {"50.000000": 1500, "99.900000": 9000}}}}]}"#;
        let sample = Sample::parse(json).unwrap();
        assert_eq!((sample.ios, sample.bytes), (200, 819_200));
        let values: Vec<f64> = sample.metrics().iter().map(Metric::median).collect();
        assert_eq!(values, [100.5, 1.5, 9.0]);
        let error = json.replace("\"error\": 0", "\"error\": 5");
        assert!(Sample::parse(&error).is_err());
        assert!(Sample::parse(&json.replace("200", "0")).is_err());
        assert!(Sample::parse("{}").is_err());
    }

    #[test]
    fn processor_time_is_summed() {
        assert_eq!(
            parse_machine("cpu  1 2 4 1000 1000 8 16 5\ncpu0 9").unwrap(),
            31
        );
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 30 12 0 0";
        assert_eq!(parse_process(stat).unwrap(), 42);
        assert!(parse_process("").is_err());
    }
}
