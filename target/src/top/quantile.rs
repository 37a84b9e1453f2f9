//! Quantiles of the samples added to a histogram between two readings.

use super::page::Page;

/// Histogram buckets: ascending upper bounds with non-cumulative counts.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Buckets {
    counts: Vec<(f64, f64)>,
}

impl Buckets {
    pub(super) fn between(
        before: &Page,
        after: &Page,
        name: &str,
        labels: &[(&str, &str)],
    ) -> Self {
        let bucket = format!("{name}_bucket");
        let cumulative = |page: &Page| {
            let mut sums: Vec<(f64, f64)> = Vec::new();
            for sample in page.all(&bucket).iter().filter(|sample| sample.has(labels)) {
                let Ok(bound) = sample.label("le").parse::<f64>() else {
                    continue;
                };
                match sums.binary_search_by(|(other, _)| other.total_cmp(&bound)) {
                    Ok(at) => sums[at].1 += sample.value,
                    Err(at) => sums.insert(at, (bound, sample.value)),
                }
            }
            sums
        };
        let earlier = cumulative(before);
        let mut below = 0.0;
        let counts = cumulative(after).into_iter().map(|(bound, now)| {
            let then = earlier.iter().find(|(other, _)| *other == bound);
            // A count falls when a host has reconnected, because its counters restart at 0.
            let reached = (now - then.map_or(0.0, |(_, count)| *count)).max(below);
            let count = reached - below;
            below = reached;
            (bound, count)
        });
        Self {
            counts: counts.collect(),
        }
    }

    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        let total: f64 = self.counts.iter().map(|(_, count)| count).sum();
        if total <= 0.0 {
            return None;
        }
        let mut wanted = total * share;
        let mut lower = 0.0;
        for &(bound, count) in &self.counts {
            if count > 0.0 && wanted <= count {
                return Some(if bound.is_finite() {
                    lower + (bound - lower) * wanted / count
                } else {
                    lower
                });
            }
            wanted -= count;
            lower = bound;
        }
        Some(lower)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(counts: [u32; 3]) -> Page {
        let [low, middle, all] = counts;
        Page::parse(&format!(
            "t_bucket{{op=\"read\",le=\"0.001\"}} {low}\n\
             t_bucket{{op=\"read\",le=\"0.002\"}} {middle}\n\
             t_bucket{{op=\"read\",le=\"+Inf\"}} {all}\n"
        ))
        .unwrap()
    }

    #[test]
    fn quantiles_are_of_the_difference() {
        let buckets = Buckets::between(&page([5, 5, 5]), &page([5, 15, 15]), "t", &[]);
        assert_eq!(buckets.quantile(0.5), Some(0.0015));
        assert_eq!(buckets.quantile(1.0), Some(0.002));
        let buckets = Buckets::between(&page([0, 0, 0]), &page([4, 4, 5]), "t", &[("op", "read")]);
        assert_eq!(buckets.quantile(0.5), Some(0.000_625));
        assert_eq!(buckets.quantile(0.99), Some(0.002));
    }

    #[test]
    fn nothing_has_no_quantile() {
        let same = Buckets::between(&page([1, 2, 3]), &page([1, 2, 3]), "t", &[]);
        assert_eq!(same.quantile(0.5), None);
        let none = Buckets::between(&page([1, 2, 3]), &page([2, 3, 4]), "t", &[("op", "x")]);
        assert_eq!(none.quantile(0.5), None);
    }

    #[test]
    fn a_series_that_began_anew_counts_from_0() {
        let buckets = Buckets::between(&page([9, 9, 9]), &page([1, 1, 1]), "t", &[]);
        assert_eq!(buckets.quantile(0.5), None);
    }
}
