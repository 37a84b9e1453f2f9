//! Comparison of two runs, with the significance of differences.
//!
//! The ratio of two medians has an exact 95 % bootstrap interval. A noise floor widens the
//! interval, because even two runs of one program differ.

use super::figure::number;
use super::table::Grid;
use super::{Better, Metric, Results};

const TAIL: f64 = 0.025;

#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) changes: Vec<Change>,
    pub(crate) unmatched: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Change {
    group: String,
    row: String,
    metric: String,
    before: f64,
    after: f64,
    pub(crate) ratio: f64,
    pub(crate) bounds: (f64, f64),
    pub(crate) verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Better,
    Worse,
    WithinNoise,
}

impl Comparison {
    /// Compares two runs. `noise` is the fraction by which runs of the same program may differ.
    pub(crate) fn new(before: &Results, after: &Results, all: bool, noise: f64) -> Self {
        let mut changes = Vec::new();
        let mut unmatched = Vec::new();
        let label = |group: &str, row: &str| format!("{group}: {row}");
        for row in &after.rows {
            let Some(old) = before.row(&row.group, &row.name) else {
                unmatched.push(label(&row.group, &row.name));
                continue;
            };
            let shown = if all { row.metrics.len() } else { 1 };
            for metric in row.metrics.iter().take(shown) {
                if let Some(old) = old.metric(&metric.name) {
                    changes.push(Change::new(&row.group, &row.name, old, metric, noise));
                }
            }
        }
        let gone = before.rows.iter();
        let gone = gone.filter(|row| after.row(&row.group, &row.name).is_none());
        unmatched.extend(gone.map(|row| label(&row.group, &row.name)));
        Self { changes, unmatched }
    }

    pub(crate) fn is_worse(&self) -> bool {
        self.changes.iter().any(|c| c.verdict == Verdict::Worse)
    }

    pub(crate) fn table(&self) -> String {
        let head = ["", "figure", "before", "after", "ratio", "95 %", ""];
        let mut grid = vec![head.map(str::to_owned).to_vec()];
        for change in &self.changes {
            let (low, high) = change.bounds;
            let verdict = match change.verdict {
                Verdict::Better => "better",
                Verdict::Worse => "worse",
                Verdict::WithinNoise => "within noise",
            };
            grid.push(vec![
                format!("{}: {}", change.group, change.row),
                change.metric.clone(),
                number(change.before),
                number(change.after),
                format!("{:.3}", change.ratio),
                format!("{low:.3} - {high:.3}"),
                verdict.to_owned(),
            ]);
        }
        let mut text = Grid(grid).aligned();
        for row in &self.unmatched {
            text += &format!("  {row}: in one of the two only\n");
        }
        text
    }
}

impl Change {
    fn new(group: &str, row: &str, before: &Metric, after: &Metric, noise: f64) -> Self {
        let (low, high) = interval(before, after);
        let bounds = (low / (1.0 + noise), high * (1.0 + noise));
        let verdict = match (bounds.0 > 1.0, bounds.1 < 1.0, after.better) {
            (true, _, Better::Higher) | (_, true, Better::Lower) => Verdict::Better,
            (true, _, Better::Lower) | (_, true, Better::Higher) => Verdict::Worse,
            _ => Verdict::WithinNoise,
        };
        Self {
            group: group.to_owned(),
            row: row.to_owned(),
            metric: after.name.clone(),
            before: before.median(),
            after: after.median(),
            ratio: quotient(after.median(), before.median()),
            bounds,
            verdict,
        }
    }
}

fn quotient(after: f64, before: f64) -> f64 {
    if after == before { 1.0 } else { after / before }
}

fn interval(before: &Metric, after: &Metric) -> (f64, f64) {
    let mut ratios = Vec::new();
    for (old, old_chance) in medians(before) {
        for (new, new_chance) in medians(after) {
            ratios.push((quotient(new, old), old_chance * new_chance));
        }
    }
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    (past_tail(ratios.iter()), past_tail(ratios.iter().rev()))
}

fn past_tail<'a>(mut ratios: impl Iterator<Item = &'a (f64, f64)>) -> f64 {
    let mut sum = 0.0;
    let found = ratios.find(|(_, chance)| {
        sum += chance;
        sum > TAIL
    });
    found.expect("chances add up to one").0
}

fn medians(metric: &Metric) -> Vec<(f64, f64)> {
    let sorted = metric.sorted();
    let n = sorted.len();
    let draws = if n.is_multiple_of(2) { n - 1 } else { n };
    let mut below = 0.0;
    let of_sample = |(at, sample): (usize, f64)| {
        let at_most = at_least(draws.div_ceil(2), draws, (at + 1) as f64 / n as f64);
        let chance = at_most - below;
        below = at_most;
        (sample, chance)
    };
    sorted.into_iter().enumerate().map(of_sample).collect()
}

fn at_least(least: usize, draws: usize, chance: f64) -> f64 {
    let mut ways = 1.0;
    let mut sum = 0.0;
    for hits in 0..=draws {
        if hits >= least {
            sum += ways * chance.powi(hits as i32) * (1.0 - chance).powi((draws - hits) as i32);
        }
        ways *= (draws - hits) as f64 / (hits + 1) as f64;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::super::tests::one_row;
    use super::*;

    fn verdict(better: Better, before: &[f64], after: &[f64]) -> Verdict {
        let (before, after) = (one_row(better, before), one_row(better, after));
        let comparison = Comparison::new(&before, &after, true, 0.02);
        comparison.changes[0].verdict
    }

    #[test]
    fn clear_differences_are_distinguished_from_noise() {
        let base = [100.0, 101.0, 102.0, 99.0, 98.0];
        let twice = base.map(|sample| sample * 2.0);
        let shaken = [97.0, 103.0, 101.0, 100.0, 99.0];
        for (better, after, expected) in [
            (Better::Higher, twice, Verdict::Better),
            (Better::Lower, twice, Verdict::Worse),
            (Better::Higher, base.map(|s| s / 2.0), Verdict::Worse),
            (Better::Lower, base.map(|s| s / 2.0), Verdict::Better),
            (Better::Higher, shaken, Verdict::WithinNoise),
            (Better::Higher, base, Verdict::WithinNoise),
        ] {
            assert_eq!(verdict(better, &base, &after), expected, "{after:?}");
        }
    }

    #[test]
    fn one_outlier_among_seven_hides_nothing() {
        let base = [100.0, 101.0, 102.0, 99.0, 20.0, 98.0, 103.0];
        let better = [130.0, 131.0, 128.0, 129.0, 25.0, 127.0, 132.0];
        assert_eq!(verdict(Better::Higher, &base, &better), Verdict::Better);
    }

    #[test]
    fn single_samples_have_the_floor_alone() {
        let (before, after) = (
            one_row(Better::Higher, &[100.0]),
            one_row(Better::Higher, &[101.0]),
        );
        let comparison = Comparison::new(&before, &after, false, 0.02);
        let change = &comparison.changes[0];
        assert_eq!(change.ratio, 1.01);
        assert!((change.bounds.0 - 1.01 / 1.02).abs() < 1e-9);
        assert!((change.bounds.1 - 1.01 * 1.02).abs() < 1e-9);
        assert_eq!(change.verdict, Verdict::WithinNoise);
        assert!(!comparison.is_worse());
    }

    #[test]
    fn chances_of_medians_add_up() {
        for count in 1..=9 {
            let mut metric = Metric::once("IOPS", "1/s", Better::Higher, 0.0);
            metric.samples = (0..count).map(f64::from).collect();
            let chances = medians(&metric);
            let sum: f64 = chances.iter().map(|(_, chance)| chance).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{chances:?}");
            let (first, last) = (chances[0].1, chances[chances.len() - 1].1);
            assert!((first - last).abs() < 1e-9, "{chances:?}");
        }
        assert!((at_least(2, 3, 1.0 / 3.0) - 7.0 / 27.0).abs() < 1e-9);
    }

    #[test]
    fn rows_of_one_run_alone_are_named() {
        let before = one_row(Better::Higher, &[1.0]);
        let mut after = one_row(Better::Higher, &[1.0]);
        after.rows[0].name = "other".into();
        let comparison = Comparison::new(&before, &after, false, 0.0);
        assert!(comparison.changes.is_empty());
        assert_eq!(
            comparison.unmatched,
            ["soft mem: other", "soft mem: randread 4k qd1"]
        );
        assert!(comparison.table().contains("in one of the two only"));
    }
}
