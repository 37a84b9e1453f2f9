use std::fmt::Write;

use super::super::lane::Direction;
use super::super::run::BenchResult;
use super::super::stats::{DirectionStats, PERCENTILES, Series, per_second};
use super::units::{binary_bytes, decimal, decimal_bytes, time_unit};
use super::{Entry, entries};

/// Formats a result like the normal output of fio.
#[must_use]
pub fn text(result: &BenchResult) -> String {
    let entries = entries(result);
    let mut out = String::new();
    for entry in &entries {
        job(&mut out, entry);
    }
    run_status(&mut out, &entries);
    if entries.iter().any(|entry| entry.incomplete.is_some()) {
        out.push_str("\nINCOMPLETE: not all jobs did all of their work\n");
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
        "bench: (groupid=0, jobs={}): err={:2}{}: pid={}",
        entry.copies,
        entry.errno(),
        why.unwrap_or_default(),
        std::process::id()
    );
    if let Some(why) = entry.incomplete {
        let ms = (entry.longest_s * 1e3) as u64;
        line!(
            out,
            "  INCOMPLETE: stopped after {ms} msec ({why}): the figures are of the commands until then"
        );
    }
    for mismatch in &entry.mismatches {
        line!(out, "  {mismatch}");
    }
    let stats = &entry.stats;
    for direction in Direction::ALL {
        if stats.of(direction).ios > 0 {
            moved(out, direction, stats.of(direction));
        }
    }
    line!(
        out,
        "  cpu          : usr={:.2}%, sys={:.2}%, ctx={}, majf={}, minf={}",
        entry.percent_of_time(entry.cpu.user_s),
        entry.percent_of_time(entry.cpu.system_s),
        entry.cpu.switches,
        entry.cpu.major_faults,
        entry.cpu.minor_faults
    );
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
}

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

fn run_status(out: &mut String, entries: &[Entry<'_>]) {
    line!(out, "\nRun status group 0 (all jobs):");
    for direction in Direction::ALL {
        let used = || {
            entries
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
        let sum = per_second(bytes, longest);
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
