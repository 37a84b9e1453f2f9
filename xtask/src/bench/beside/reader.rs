//! Latency of 4 KiB reads, with and without a writer of large blocks on the same target.

use anyhow::{Context, Result};

use super::super::cell::Workload::{RandRead, RandWrite};
use super::super::ends::Stage;
use super::super::neighbour;
use super::Row;
use super::spdk::{Job, Spdk};
use crate::results::Better::{Higher, Lower};
use crate::results::{Mark, Metric, Results};

const GROUP: &str = "4k random reads at depth 1, beside 128k random writes at depth 32";

const TIMES: &str = "p99, of that alone";

const MARK: f64 = 3.0;

const READER: Row = Row::new(RandRead, 4, 1, MARK);
const WRITER: Row = Row::new(RandWrite, 128, 32, MARK);

struct Seen {
    iops: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
}

pub(super) fn measure(
    stage: &Stage,
    spdk: &Spdk,
    seconds: u32,
    results: &mut Results,
) -> Result<()> {
    let cell = &READER.cell;
    let ours = stage.measure(cell).map(|sample| sample.report);
    let alone = seen_by_us(&ours.context("Cairn, a reader alone")?);
    let ours = stage.with_neighbour(cell, &WRITER.cell);
    let beside = seen_by_us(&ours.context("Cairn, a reader beside a writer")?);
    results.record(GROUP, "Cairn", metrics(&alone, &beside));

    let job = READER.job(seconds);
    let writer = Job {
        seconds: neighbour::covering(seconds.into()).ceil() as u32,
        ..WRITER.job(seconds)
    };
    let theirs = spdk.measure(&job, stage.cores, &stage.folder);
    let alone = seen_by_spdk(&theirs.context("SPDK, a reader alone")?);
    let theirs = spdk.with_neighbour(&job, &writer, stage.cores, &stage.folder);
    let beside = seen_by_spdk(&theirs.context("SPDK, a reader beside a writer")?);
    results.record(GROUP, "SPDK", metrics(&alone, &beside));
    Ok(())
}

pub(super) fn put_mark(results: &mut Results) {
    for row in &mut results.rows {
        if row.group == GROUP && row.name == "Cairn" {
            row.mark = Some(Mark {
                metric: TIMES.to_owned(),
                low: MARK,
                high: MARK,
                source: "the most that a neighbour is to make of a reader's p99".to_owned(),
            });
        }
    }
}

fn seen_by_us(report: &super::Report) -> Seen {
    let us = |ns: f64| ns / 1e3;
    Seen {
        iops: report.iops,
        p99_us: us(report.percentiles.p99),
        p999_us: us(report.percentiles.p999),
        max_us: us(report.slowest_ns),
    }
}

fn seen_by_spdk(sample: &super::spdk::Sample) -> Seen {
    Seen {
        iops: sample.iops,
        p99_us: sample.p99_us,
        p999_us: sample.p999_us,
        max_us: sample.max_us,
    }
}

fn metrics(alone: &Seen, beside: &Seen) -> Vec<Metric> {
    vec![
        Metric::once(TIMES, "", Lower, beside.p99_us / alone.p99_us),
        Metric::once("p99 alone", "us", Lower, alone.p99_us),
        Metric::once("p99 beside", "us", Lower, beside.p99_us),
        Metric::once("p99.9 alone", "us", Lower, alone.p999_us),
        Metric::once("p99.9 beside", "us", Lower, beside.p999_us),
        Metric::once("max alone", "us", Lower, alone.max_us),
        Metric::once("max beside", "us", Lower, beside.max_us),
        Metric::once("alone", "1/s", Higher, alone.iops),
        Metric::once("beside", "1/s", Higher, beside.iops),
    ]
}
