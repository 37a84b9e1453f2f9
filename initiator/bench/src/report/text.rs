//! Text report in fio's format.

use std::fmt::Write;

use super::super::job::Direction;
use super::super::run::BenchResult;
use super::super::stats::{DirectionStats, JobStats, PERCENTILES, Series};
use super::units::{binary_bytes, decimal, decimal_bytes, time_unit};
use super::{Entry, entries};

/// Formats a result as text.
#[must_use]
pub fn text(result: &BenchResult) -> String {
    let entries = entries(result);
    let mut out = String::new();
    for entry in &entries {
        job(&mut out, entry);
    }
    let groups = entries.chunk_by(|a, b| a.group == b.group);
    for group in groups {
        run_status(&mut out, group);
    }
    if result.interrupted {
        out.push_str("\ninterrupted: the report is of what was done until then\n");
    }
    out
}

macro_rules! line {
    ($out:expr, $($arg:tt)*) => {
        writeln!($out, $($arg)*).expect("memory takes all")
    };
}

fn job(out: &mut String, entry: &Entry<'_>) {
    let why = entry.error.map(|error| format!(" ({error})"));
    line!(
        out,
        "{}: (groupid={}, jobs={}): err={:2}{}: pid={}",
        entry.job.name,
        entry.group,
        entry.copies,
        entry.errno(),
        why.unwrap_or_default(),
        std::process::id()
    );
    for mismatch in &entry.mismatches {
        line!(out, "  {mismatch}");
    }
    let stats = &entry.stats;
    for direction in Direction::ALL {
        if stats.of(direction).ios > 0 {
            moved(out, direction, stats.of(direction));
        }
    }
    if stats.sync_ns.count > 0 {
        out.push_str("  fsync:\n");
        series(out, "sync", &stats.sync_ns);
    }
    classes(out, stats);
    line!(
        out,
        "  cpu          : usr={:.2}%, sys={:.2}%, ctx={}, majf={}, minf={}",
        entry.percent_of_time(entry.cpu.user_s),
        entry.percent_of_time(entry.cpu.system_s),
        entry.cpu.switches,
        entry.cpu.major_faults,
        entry.cpu.minor_faults
    );
    steps(out, entry);
    if entry.job.verify {
        line!(
            out,
            "     verified  : {} blocks of {} right, {} bad",
            stats.verified,
            binary_bytes(entry.job.bs_min as f64),
            stats.bad_blocks
        );
    }
}

fn moved(out: &mut String, direction: Direction, stats: &DirectionStats) {
    let (bytes, bandwidth) = (stats.bytes as f64, stats.bandwidth());
    line!(
        out,
        "  {:>5}: IOPS={}, BW={}/s ({}/s)({}/{}msec)",
        direction.name(),
        decimal(stats.iops()),
        binary_bytes(bandwidth),
        decimal_bytes(bandwidth),
        binary_bytes(bytes),
        stats.runtime.as_millis()
    );
    series(out, "slat", &stats.slat_ns);
    series(out, "clat", &stats.clat_ns);
    series(out, "lat", &stats.lat_ns);
    percentiles(out, stats);
    samples(out, stats);
}

/// Appends a line such as `    clat (usec): min=17, max=10520, avg=271.65, stdev=358.04`.
fn series(out: &mut String, name: &str, series: &Series) {
    let (divisor, unit) = time_unit(series.min, series.max);
    line!(
        out,
        "    {name:>4} ({unit}): min={:.0}, max={:.0}, avg={:5.2}, stdev={:5.2}",
        series.min / divisor,
        series.max / divisor,
        series.mean / divisor,
        series.deviation() / divisor
    );
}

fn percentiles(out: &mut String, stats: &DirectionStats) {
    let values = PERCENTILES.map(|percent| (percent, stats.clat_percentile_ns(percent)));
    let (lowest, highest) = (values[0].1 as f64, values[values.len() - 1].1 as f64);
    let (divisor, unit) = time_unit(lowest, highest);
    line!(out, "    clat percentiles ({unit}):");
    let shown = values.map(|(percent, ns)| (percent, format!("{:.0}", ns as f64 / divisor)));
    let width = shown.iter().map(|(_, v)| v.len()).max().unwrap_or(0).max(5);
    let rows = shown.chunks(4);
    let last = rows.len() - 1;
    for (at, row) in rows.enumerate() {
        let cells: Vec<_> = row
            .iter()
            .map(|(percent, value)| format!("{percent:>5.2}th=[{value:>width$}]"))
            .collect();
        let comma = if at == last { "" } else { "," };
        line!(out, "     | {}{comma}", cells.join(", "));
    }
}

fn samples(out: &mut String, stats: &DirectionStats) {
    let bw = &stats.bw_samples;
    if bw.count > 0 {
        let of_all = stats.bandwidth() / 1024.0;
        line!(
            out,
            "   bw (  KiB/s): min={:5.0}, max={:5.0}, per={:3.2}%, avg={:5.2}, stdev={:5.2}, \
             samples={}",
            bw.min,
            bw.max,
            (bw.mean * 100.0 / of_all).min(100.0),
            bw.mean,
            bw.deviation(),
            bw.count
        );
        let iops = &stats.iops_samples;
        line!(
            out,
            "   iops        : min={:5.0}, max={:5.0}, avg={:5.2}, stdev={:5.2}, samples={}",
            iops.min,
            iops.max,
            iops.mean,
            iops.deviation(),
            iops.count
        );
    }
}

/// Appends latency classes such as `  lat (usec)   : 250=49.77%, 500=41.82%`, at most five per line.
fn classes(out: &mut String, stats: &JobStats) {
    let units = ["nsec", "usec", "msec"];
    for (unit, table) in units.iter().zip(stats.classes.percent()) {
        let cells: Vec<_> = table
            .iter()
            .filter(|(_, share)| *share > 0.0)
            .map(|(class, share)| format!("{class}={share:.2}%"))
            .collect();
        for row in cells.chunks(5) {
            line!(out, "  lat ({unit})   : {}", row.join(", "));
        }
    }
}

fn steps(out: &mut String, entry: &Entry<'_>) {
    let stats = &entry.stats;
    let row = |names: [&str; 7], shares: [f64; 7]| {
        let cells: Vec<_> = names
            .iter()
            .zip(shares)
            .map(|(name, share)| format!("{name}={share:.1}%"))
            .collect();
        cells.join(", ")
    };
    let depths = ["1", "2", "4", "8", "16", "32", ">=64"];
    let batches = ["0", "4", "8", "16", "32", "64", ">=64"];
    line!(
        out,
        "  IO depths    : {}",
        row(depths, stats.depth.percent())
    );
    line!(
        out,
        "     submit    : {}",
        row(batches, stats.submit.percent())
    );
    line!(
        out,
        "     complete  : {}",
        row(batches, stats.complete.percent())
    );
    let ios = |direction| stats.of(direction).ios;
    line!(
        out,
        "     issued rwts: total={},{},{},{} short=0,0,0,0 dropped=0,0,0,0",
        ios(Direction::Read),
        ios(Direction::Write),
        ios(Direction::Trim),
        stats.sync_ns.count
    );
    line!(
        out,
        "     latency   : target=0, window=0, percentile=100.00%, depth={}",
        entry.job.iodepth
    );
}

fn run_status(out: &mut String, group: &[Entry<'_>]) {
    line!(out, "\nRun status group {} (all jobs):", group[0].group);
    for direction in Direction::ALL {
        let used = || {
            group
                .iter()
                .map(|entry| entry.stats.of(direction))
                .filter(|s| s.ios > 0)
        };
        if used().next().is_none() {
            continue;
        }
        let bytes: u64 = used().map(|stats| stats.bytes).sum();
        let longest = used().map(|stats| stats.runtime).max().unwrap_or_default();
        let shortest = used().map(|stats| stats.runtime).min().unwrap_or_default();
        let sum = bytes as f64 / longest.as_secs_f64().max(f64::MIN_POSITIVE);
        let low = used()
            .map(DirectionStats::bandwidth)
            .fold(f64::MAX, f64::min);
        let high = used().map(DirectionStats::bandwidth).fold(0.0, f64::max);
        line!(
            out,
            "{:>7}: bw={}/s ({}/s), {}/s-{}/s ({}/s-{}/s), io={} ({}), run={}-{}msec",
            direction.name().to_uppercase(),
            binary_bytes(sum),
            decimal_bytes(sum),
            binary_bytes(low),
            binary_bytes(high),
            decimal_bytes(low),
            decimal_bytes(high),
            binary_bytes(bytes as f64),
            decimal_bytes(bytes as f64),
            shortest.as_millis(),
            longest.as_millis()
        );
    }
}
