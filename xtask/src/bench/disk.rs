//! Benchmark of the disk backend without a network, compared with fio's io_uring engine.

use std::process::Command;

use anyhow::Result;

use super::cell::Workload;
use super::ends::Stage;
use super::programs;
use crate::fio_report::Report;
use crate::results::Better::{Higher, Lower};
use crate::results::Metric;

pub(super) const GROUP: &str = "disk";

const BYTES: u32 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiskRow {
    pub(super) workload: Workload,
    pub(super) depth: u32,
}

impl DiskRow {
    pub(super) fn all() -> Vec<Self> {
        let workloads = [Workload::RandRead, Workload::RandWrite];
        let row = |workload| [1, 32, 128].map(|depth| Self { workload, depth });
        workloads.into_iter().flat_map(row).collect()
    }

    pub(super) fn name(self) -> String {
        format!("{} 4k qd{}", self.workload, self.depth)
    }

    pub(super) fn measure(self, stage: &Stage) -> Result<Vec<Metric>> {
        let ours = programs::report(&mut stage.ours(self))?;
        let fio = programs::report(&mut stage.fio(self))?;
        let us = |report: &Report| report.percentiles.p50 / 1e3;
        Ok(vec![
            Metric::once("of fio", "", Higher, ours.iops / fio.iops),
            Metric::once("Cairn", "1/s", Higher, ours.iops),
            Metric::once("fio", "1/s", Higher, fio.iops),
            Metric::once("Cairn p50", "us", Lower, us(&ours)),
            Metric::once("fio p50", "us", Lower, us(&fio)),
        ])
    }
}

impl Stage {
    fn ours(&self, row: DiskRow) -> Command {
        let mut command = programs::pinned(
            self.cores.1,
            self.programs.join("examples/cairn-bench-disk"),
        );
        command
            .arg("--filename")
            .arg(self.disk())
            .arg(format!("--rw={}", row.workload))
            .arg(format!("--bs={BYTES}"))
            .arg(format!("--iodepth={}", row.depth))
            .arg(format!("--runtime-ms={}", (self.seconds * 1e3) as u64));
        command
    }

    fn fio(&self, row: DiskRow) -> Command {
        let mut command = programs::pinned(self.cores.1, "fio");
        command
            .args(["--name=disk", "--ioengine=io_uring", "--direct=1"])
            .args(["--fixedbufs", "--registerfiles", "--norandommap"])
            .args(["--time_based", "--thread", "--output-format=json"])
            .arg(format!("--filename={}", self.disk().display()))
            .arg(format!("--rw={}", row.workload))
            .arg(format!("--bs={BYTES}"))
            .arg(format!("--iodepth={}", row.depth))
            .arg(format!("--runtime={}ms", (self.seconds * 1e3) as u64));
        command
    }
}
