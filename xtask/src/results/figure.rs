use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    Higher,
    Lower,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Metric {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) better: Better,
    pub(crate) samples: Vec<f64>,
}

impl Metric {
    pub(crate) fn once(name: &str, unit: &str, better: Better, sample: f64) -> Self {
        Self {
            name: name.to_owned(),
            unit: unit.to_owned(),
            better,
            samples: vec![sample],
        }
    }

    pub(crate) fn head(&self) -> String {
        match self.unit.as_str() {
            "" => self.name.clone(),
            unit => format!("{} [{unit}]", self.name),
        }
    }

    pub(crate) fn median(&self) -> f64 {
        let sorted = self.sorted();
        sorted[(sorted.len() - 1) / 2]
    }

    pub(crate) fn min(&self) -> f64 {
        self.sorted()[0]
    }

    pub(crate) fn max(&self) -> f64 {
        *self.sorted().last().expect("a figure has a sample")
    }

    pub(super) fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    if size < 1000.0 {
        let decimals = match size {
            0.0 => 0,
            _ if size < 0.995 => 3,
            _ if size < 9.95 => 2,
            _ if size < 99.5 => 1,
            _ => 0,
        };
        return format!("{value:.decimals$}");
    }
    let digits = format!("{size:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 {
        text.insert(0, '-');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_a_sample() {
        let mut metric = Metric::once("p50", "us", Better::Lower, 3.0);
        assert_eq!(
            (metric.median(), metric.min(), metric.max()),
            (3.0, 3.0, 3.0)
        );
        metric.samples.extend([1.0, 9.0, 2.0]);
        assert_eq!(
            (metric.median(), metric.min(), metric.max()),
            (2.0, 1.0, 9.0)
        );
        metric.samples.push(8.0);
        assert_eq!(metric.median(), 3.0);
    }

    #[test]
    fn numbers_are_readable() {
        for (value, text) in [
            (0.0, "0"),
            (0.1234, "0.123"),
            (1.0, "1.00"),
            (12.34, "12.3"),
            (999.4, "999"),
            (1000.0, "1,000"),
            (237_293.6, "237,294"),
            (1_234_567.0, "1,234,567"),
            (-4321.0, "-4,321"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
