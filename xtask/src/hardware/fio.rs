use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::machines::Machines;
use super::shell::{Shell, sh};
use crate::fio_report::Report;
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

/// Writes for at least four seconds, then verifies.
pub(super) fn writer(device: &Path) -> Command {
    let mut fio = checksummed(device);
    fio.args(["--rw=randwrite", "--bs=4k", "--io_size=8m"]);
    fio.args(["--rate_iops=500", "--verify_fatal=1", "--thread"]);
    fio
}

/// Fills the device with data that has a checksum in each 4 KiB, so that [`verify`] accepts these
/// blocks and those that are overwritten later.
pub(super) fn fill_verified(device: &Path) -> Result<()> {
    let mut fio = checksummed(device);
    output(fio.args(["--rw=write", "--bs=128k", "--do_verify=0"])).map(drop)
}

pub(super) fn verify(device: &Path) -> Result<()> {
    let mut fio = checksummed(device);
    output(fio.args(["--rw=read", "--bs=128k", "--verify_fatal=1"])).map(drop)
}

fn checksummed(device: &Path) -> Command {
    let mut fio = command_on(device);
    fio.args(["--size=16m", "--iodepth=8", "--verify=crc32c"]);
    fio.args(["--verify_interval=4k", "--verify_state_save=0"]);
    fio
}

pub(super) fn measure(
    row: &Row,
    seconds: u64,
    device: &Path,
    machines: &Machines,
    target: Option<u32>,
) -> Result<(Vec<Metric>, u64)> {
    let mut fio = command_on(device);
    fio.arg(format!("--rw=rand{}", row.way));
    fio.arg(format!("--bs={}", row.size));
    fio.arg(format!("--iodepth={}", row.depth));
    fio.args(["--time_based", &format!("--runtime={seconds}")]);
    let hertz: f64 = sh("getconf CLK_TCK")?.trim().parse()?;
    let before = ticks(machines, target)?;
    let json = output(&mut fio)?;
    let after = ticks(machines, target)?;
    // fio may print notes first.
    let json = json.find('{').map_or("", |start| &json[start..]);
    let report =
        Report::read(json).with_context(|| format!("in fio's report of {}", row.name()))?;
    let mut metrics = metrics_of(&report);
    for ((name, before), (_, after)) in before.into_iter().zip(after) {
        let each = after.saturating_sub(before) as f64 / hertz * 1e6 / report.ios;
        metrics.push(Metric::once(name, "us/IO", Better::Lower, each));
    }
    let bytes = report.bytes_per_s * report.runtime.as_secs_f64();
    Ok((metrics, bytes as u64))
}

fn metrics_of(report: &Report) -> Vec<Metric> {
    let percentiles = &report.percentiles;
    vec![
        Metric::once("IOPS", "1/s", Better::Higher, report.iops),
        Metric::once("p50", "us", Better::Lower, percentiles.p50 / 1000.0),
        Metric::once("p99.9", "us", Better::Lower, percentiles.p999 / 1000.0),
    ]
}

fn ticks(machines: &Machines, target: Option<u32>) -> Result<Vec<(&'static str, u64)>> {
    let of_machine = |shell: &Shell| parse_machine(&shell.run("head -n 1 /proc/stat")?);
    let far = machines.far();
    let mut ticks = match machines.peer() {
        None => vec![("CPU of the machine", of_machine(far)?)],
        Some(peer) => vec![
            ("CPU of the host's machine", of_machine(machines.here())?),
            ("CPU of the target's machine", of_machine(peer)?),
        ],
    };
    if let Some(pid) = target {
        let stat = far.run(&format!("cat /proc/{pid}/stat"))?;
        ticks.push(("CPU of the target", parse_process(&stat)?));
    }
    Ok(ticks)
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
        let json = r#"{"jobs": [{"error": 0, "job_runtime": 2000,
            "read": {"total_ios": 0, "iops": 0, "bw_bytes": 0, "clat_ns": {"max": 0}},
            "write": {"total_ios": 200, "iops": 100.5, "bw_bytes": 409600, "clat_ns": {"max": 9500,
            "percentile": {"50.000000": 1500, "99.000000": 8000, "99.900000": 9000}}}}]}"#;
        let metrics = metrics_of(&Report::read(json).unwrap());
        let values: Vec<f64> = metrics.iter().map(Metric::median).collect();
        assert_eq!(values, [100.5, 1.5, 9.0]);
        let error = json.replace("\"error\": 0", "\"error\": 5");
        assert!(Report::read(&error).is_err());
        assert!(Report::read(&json.replace("200,", "0,")).is_err());
        assert!(Report::read("{}").is_err());
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
