//! Latency histograms as text.

use std::fmt::Write;

use super::super::job::Direction;
use super::super::run::BenchResult;
use super::entries;
use hdrhistogram::Histogram;

const BAR: usize = 48;
/// Row bounds within each decade.
const STEPS: [u64; 3] = [1, 2, 5];

/// Formats histograms of completion latency for each report entry and direction.
#[must_use]
pub fn histogram(result: &BenchResult) -> String {
    let mut out = String::new();
    for entry in entries(result) {
        for direction in Direction::ALL {
            let stats = entry.stats.of(direction);
            if stats.ios > 0 {
                let title = format!("{}: {} latency", entry.job.name, direction.name());
                draw(&mut out, &title, &stats.clat_histogram);
            }
        }
    }
    out
}

fn draw(out: &mut String, title: &str, histogram: &Histogram<u64>) {
    let rows = rows(histogram);
    let most = rows.iter().map(|row| row.count).max().unwrap_or(1).max(1);
    writeln!(out, "\n{title}").expect("memory takes all");
    for row in rows {
        let length = (row.count as f64 / most as f64 * BAR as f64).ceil() as usize;
        let share = row.count as f64 * 100.0 / histogram.len() as f64;
        writeln!(
            out,
            "  up to {:>7} |{:<BAR$}| {share:6.2}%  {}",
            time(row.to_ns),
            "#".repeat(length),
            row.count
        )
        .expect("memory takes all");
    }
}

struct Row {
    to_ns: u64,
    count: u64,
}

fn rows(histogram: &Histogram<u64>) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut below = 0;
    for to_ns in steps() {
        let up_to = histogram.count_between(0, to_ns);
        let row = Row {
            to_ns,
            count: up_to - below,
        };
        below = up_to;
        if row.count > 0 || !rows.is_empty() {
            rows.push(row);
        }
        if up_to == histogram.len() {
            break;
        }
    }
    rows
}

fn steps() -> impl Iterator<Item = u64> {
    (0..12).flat_map(|decade| STEPS.map(|step| step * 10u64.pow(decade)))
}

fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} us", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => format!("{} s", ns / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_counts() {
        let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).unwrap();
        histogram.record_n(15_000, 10).unwrap();
        histogram.record_n(40_000, 40).unwrap();
        histogram.record(3_000_000).unwrap();
        let mut out = String::new();
        draw(&mut out, "j: read latency", &histogram);
        let lines: Vec<_> = out.trim().lines().collect();
        assert_eq!(lines[0], "j: read latency");
        assert!(
            lines[1].starts_with("  up to   20 us |############ "),
            "{out}"
        );
        assert!(
            lines[2].starts_with(&format!("  up to   50 us |{}|", "#".repeat(48))),
            "{out}"
        );
        assert!(lines.last().unwrap().ends_with("1.96%  1"), "{out}");
        // Expected rows end at 20, 50, 100, 200 and 500 us, and at 1, 2 and 5 ms.
        assert_eq!(lines.len(), 9, "{out}");
    }
}
