//! Benchmark of RDMA operations without storage, which separates the costs of network and disk.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use crate::results::Better::{Higher, Lower};
use crate::results::Metric;

pub(super) const GROUP: &str = "raw link";

pub(super) fn measure(programs: &Path, seconds: f64) -> Result<Vec<(String, Vec<Metric>)>> {
    let program = programs.join("examples/loopback_speed");
    let output = std::process::Command::new(&program)
        .arg(format!("{:.2}", seconds / 4.0))
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {errors}", program.display());
    let rows: Vec<_> = text.lines().filter_map(row).collect();
    ensure!(
        !rows.is_empty(),
        "{} says nothing:\n{text}",
        program.display()
    );
    Ok(rows)
}

/// Parses a row such as `READ 4096 B x 32   345678   1.42   92.6`. The last three columns are
/// operations per second, GB/s, and latency in microseconds.
fn row(line: &str) -> Option<(String, Vec<Metric>)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [
        op @ ("UDP" | "READ" | "WRITE"),
        length,
        "B",
        "x",
        depth,
        figures @ ..,
    ] = &words[..]
    else {
        return None;
    };
    let [rate, gigabytes, us] = figures else {
        return None;
    };
    let metrics = vec![
        Metric::once("operations", "1/s", Higher, rate.parse().ok()?),
        Metric::once(
            "bandwidth",
            "MB/s",
            Higher,
            gigabytes.parse::<f64>().ok()? * 1e3,
        ),
        Metric::once("each", "us", Lower, us.parse().ok()?),
    ];
    Some((format!("{op} {length} B qd{depth}"), metrics))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_example_are_rows() {
        let line = "WRITE 131072 B x 8              40281       5.28        198.6";
        let (name, metrics) = row(line).unwrap();
        assert_eq!(name, "WRITE 131072 B qd8");
        let values: Vec<f64> = metrics.iter().map(Metric::median).collect();
        assert_eq!(values, [40_281.0, 5280.0, 198.6]);
        for line in [
            "",
            "soft-127.0.0.1: sent_pkts 1",
            "READ 1 B x 2 3 4",
            "READ a b c d e f",
        ] {
            assert!(row(line).is_none(), "{line}");
        }
    }
}
