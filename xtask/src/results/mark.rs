//! Reference values for results: published results or goals.

use serde::{Deserialize, Serialize};

use super::figure::number;
use super::{Metric, Results};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) metric: String,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) source: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Marks(Vec<Entry>);

#[derive(Debug, Clone, Deserialize)]
struct Entry {
    group: String,
    row: String,
    #[serde(flatten)]
    mark: Mark,
}

impl Marks {
    pub(crate) fn parse(json: &str) -> serde_json::Result<Self> {
        serde_json::from_str(json)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn put_on(&self, results: &mut Results) {
        for row in &mut results.rows {
            let entry = self
                .0
                .iter()
                .find(|entry| entry.group == row.group && entry.row == row.name);
            row.mark = entry.map(|entry| entry.mark.clone());
        }
    }
}

impl Mark {
    pub(super) fn range(&self) -> String {
        if self.low == self.high {
            number(self.low)
        } else {
            format!("{}-{}", number(self.low), number(self.high))
        }
    }

    pub(super) fn ratio(&self, metric: &Metric) -> String {
        let median = metric.median();
        let (low, high) = (median / self.high, median / self.low);
        if self.low == self.high {
            format!("{low:.2}")
        } else {
            format!("{low:.2}-{high:.2}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::one_row;
    use super::*;
    use crate::results::Better;

    #[test]
    fn a_figure_is_a_multiple_of_its_mark() {
        let marks = Marks::parse(
            r#"[{"group": "soft mem", "row": "randread 4k qd1", "metric": "IOPS",
                 "low": 40000, "high": 80000, "source": "another program"}]"#,
        );
        let mut results = one_row(Better::Higher, &[60_000.0]);
        marks.unwrap().put_on(&mut results);
        let row = &results.rows[0];
        let mark = row.mark.as_ref().unwrap();
        assert_eq!(mark.range(), "40,000-80,000");
        assert_eq!(mark.ratio(row.metric("IOPS").unwrap()), "0.75-1.50");
    }
}
