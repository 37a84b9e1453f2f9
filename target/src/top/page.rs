//! Parser of the Prometheus text format (0.0.4).

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Page {
    samples: BTreeMap<String, Vec<Sample>>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    labels: BTreeMap<String, String>,
    pub(super) value: f64,
}

impl Page {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut page = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if line.trim().is_empty() {
                continue;
            }
            let (name, sample) =
                parse_line(line).ok_or_else(|| format!("not a line of metrics: {line:?}"))?;
            page.samples.entry(name).or_default().push(sample);
        }
        Ok(page)
    }

    pub(super) fn all(&self, name: &str) -> &[Sample] {
        self.samples.get(name).map_or(&[], Vec::as_slice)
    }

    pub(super) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let matching = self.all(name).iter().filter(|sample| sample.has(labels));
        // The sum starts at 0.0, because an empty `sum()` would be displayed as -0.
        matching.fold(0.0, |sum, sample| sum + sample.value)
    }
}

impl Sample {
    pub(super) fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }

    pub(super) fn has(&self, labels: &[(&str, &str)]) -> bool {
        labels
            .iter()
            .all(|(name, value)| self.label(name) == *value)
    }
}

fn parse_line(line: &str) -> Option<(String, Sample)> {
    let name_end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(name_end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = parse_quoted(after)?;
            labels.insert(label.to_owned(), value);
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some((name.to_owned(), Sample { labels, value }))
}

fn parse_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    loop {
        match chars.next()? {
            (end, '"') => return Some((value, &text[end + 1..])),
            (_, '\\') => value.push(match chars.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            (_, other) => value.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_with_their_labels() {
        let page = Page::parse(
            "# HELP up whether\n# TYPE up gauge\nup 1\n\n\
             ios_total{host=\"a\\\"b\\\\c\\nd\",op=\"read\"} 12 1700000000\n\
             ios_total{host=\"x\",op=\"write\",} 3e2\nle_bucket{le=\"+Inf\"} +Inf\n",
        )
        .unwrap();
        assert_eq!(page.sum("up", &[]), 1.0);
        assert_eq!(page.sum("ios_total", &[]), 312.0);
        assert_eq!(page.sum("ios_total", &[("op", "write")]), 300.0);
        assert_eq!(page.all("ios_total")[0].label("host"), "a\"b\\c\nd");
        assert_eq!(page.all("ios_total")[0].label("absent"), "");
        assert_eq!(page.sum("le_bucket", &[]), f64::INFINITY);
        assert!(page.all("absent").is_empty());
    }

    #[test]
    fn what_is_no_metric_is_an_error() {
        for line in ["<html>", "up", "up{a=\"b\" 1", "up{a} 1", "up one"] {
            let error = Page::parse(line).unwrap_err();
            assert!(error.contains(line.split('"').next().unwrap()), "{error}");
        }
    }
}
