//! Short benchmark with a table.

use std::sync::atomic::AtomicBool;

use anyhow::{Result, anyhow};
use cairn_bench::{Direction, Job, JobResult, NvmeLanes, run};

use crate::progress::Progress;

#[derive(Debug)]
pub(crate) struct Workload {
    name: &'static str,
    rw: &'static str,
    bs: &'static str,
    iodepth: &'static str,
}

pub(crate) const LINES: [Workload; 5] = [
    line("4k random read", "randread", "4k", "1"),
    line("4k random read", "randread", "4k", "32"),
    line("4k random write", "randwrite", "4k", "32"),
    line("128k sequential read", "read", "128k", "8"),
    line("128k sequential write", "write", "128k", "8"),
];

const fn line(
    name: &'static str,
    rw: &'static str,
    bs: &'static str,
    iodepth: &'static str,
) -> Workload {
    Workload {
        name,
        rw,
        bs,
        iodepth,
    }
}

impl Workload {
    pub(crate) fn measure(&self, lanes: &NvmeLanes, seconds: u64) -> Result<String> {
        let seconds = seconds.to_string();
        let keys = [
            ("rw", self.rw),
            ("bs", self.bs),
            ("iodepth", self.iodepth),
            ("runtime", &seconds),
            ("time_based", "1"),
        ];
        let label = format!("{}, depth {}", self.name, self.iodepth);
        Ok(self.row(&run_job(label, lanes, &keys)?))
    }

    fn row(&self, result: &JobResult) -> String {
        let used = Direction::ALL.map(|direction| result.stats.of(direction));
        let [stats, ..] = used
            .into_iter()
            .filter(|stats| stats.ios > 0)
            .collect::<Vec<_>>()[..]
        else {
            return format!("  {:<22} nothing was done", self.name);
        };
        let us = |percent| stats.clat_percentile_ns(percent) as f64 / 1e3;
        format!(
            "  {:<22} {:>5} {:>9.0} {:>8.1} {:>9.1} {:>9.1} {:>9.1} {:>9.1}",
            self.name,
            self.iodepth,
            stats.iops(),
            stats.bandwidth() / 1e6,
            us(50.0),
            us(99.0),
            us(99.9),
            stats.clat_ns.max / 1e3,
        )
    }
}

pub(crate) fn run_job(
    label: String,
    lanes: &NvmeLanes,
    keys: &[(&str, &str)],
) -> Result<JobResult> {
    let job = Job::with(keys).map_err(|why| anyhow!(why))?;
    let mut progress = Progress::new(label);
    let never = AtomicBool::new(false);
    let result = run(&job, lanes, &never, &mut progress).map_err(|why| anyhow!(why))?;
    let job = result.jobs.into_iter().next();
    let job = job.ok_or_else(|| anyhow!("the job did not run"))?;
    match &job.error {
        None => Ok(job),
        Some(error) => Err(anyhow!(
            "{error}\n{}\nThis is a bug in Cairn: please report it",
            job.mismatches.join("\n")
        )),
    }
}

pub(crate) fn header() -> String {
    format!(
        "  {:<22} {:>5} {:>9} {:>8} {:>9} {:>9} {:>9} {:>9}",
        "", "depth", "IOPS", "MB/s", "p50 us", "p99 us", "p99.9 us", "max us"
    )
}
