//! Strict parser of the Prometheus text format 0.0.4.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail, ensure};

pub type Labels = BTreeMap<String, String>;

#[derive(Debug, Default)]
pub struct Exposition {
    types: BTreeMap<String, String>,
    samples: Vec<(String, Labels, f64)>,
}

impl Exposition {
    #[must_use]
    pub fn scrape(address: SocketAddr) -> Self {
        let (head, body) = get(address, "/metrics");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        Self::parse(&body).unwrap_or_else(|error| panic!("{error:#}\n{body}"))
    }

    pub fn parse(text: &str) -> Result<Self> {
        ensure!(
            text.is_empty() || text.ends_with('\n'),
            "the last line has no end"
        );
        let mut page = Self::default();
        let mut current = String::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            page.line(line, &mut current)
                .with_context(|| format!("in the line {line}"))?;
        }
        page.check_histograms()?;
        Ok(page)
    }

    fn line(&mut self, line: &str, current: &mut String) -> Result<()> {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (kind, name) = (words.next().unwrap_or(""), words.next().context("no name")?);
            if kind == "TYPE" {
                let of = words.next().context("no type")?;
                ensure!(["counter", "gauge", "histogram"].contains(&of), "type {of}");
                let before = self.types.insert(name.to_owned(), of.to_owned());
                ensure!(before.is_none(), "a second group of {name}");
                name.clone_into(current);
            }
            return Ok(());
        }
        let (series, value) = line.rsplit_once(' ').context("no value")?;
        let value: f64 = value.parse().context("no number")?;
        let (name, labels) = match series.split_once('{') {
            Some((name, rest)) => (name, labels(rest.strip_suffix('}').context("no end")?)?),
            None => (series, Labels::new()),
        };
        let of_group = name
            .strip_prefix(current.as_str())
            .context("outside its group")?;
        let is_histogram = self.types.get(current).is_some_and(|of| of == "histogram");
        let parts: &[&str] = if is_histogram {
            &["_bucket", "_sum", "_count"]
        } else {
            &[""]
        };
        ensure!(parts.contains(&of_group), "outside its group");
        let known = |(own, others, _): &(String, Labels, f64)| own == name && *others == labels;
        ensure!(!self.samples.iter().any(known), "reported twice");
        self.samples.push((name.to_owned(), labels, value));
        Ok(())
    }

    fn check_histograms(&self) -> Result<()> {
        for (name, _) in self.types.iter().filter(|(_, of)| *of == "histogram") {
            let count = format!("{name}_count");
            for (_, labels, total) in self.samples.iter().filter(|(own, ..)| *own == count) {
                let buckets = self.buckets(name, labels);
                let (bound, last) = buckets.last().context("no buckets")?;
                ensure!(
                    bound.is_infinite() && last == total,
                    "{name}: no bucket for all"
                );
                let grow = buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1);
                ensure!(grow, "{name}: {buckets:?}");
            }
        }
        Ok(())
    }

    fn buckets(&self, name: &str, of: &Labels) -> Vec<(f64, f64)> {
        let name = format!("{name}_bucket");
        let buckets = self.samples.iter().filter(|(own, ..)| *own == name);
        let bounds = buckets.filter_map(|(_, labels, count)| {
            let mut labels = labels.clone();
            let bound = labels.remove("le")?;
            (labels == *of).then(|| (bound.parse().unwrap_or(f64::NAN), *count))
        });
        bounds.collect()
    }

    /// Returns the sum of a metric's samples with at least these labels; `None` without samples.
    #[must_use]
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let has = |own: &Labels| {
            let same = |(name, value): &(&str, &str)| own.get(*name).is_some_and(|v| v == value);
            labels.iter().all(same)
        };
        let samples = self.samples.iter();
        samples
            .filter(|(own, labels, _)| own == name && has(labels))
            .map(|(_, _, value)| *value)
            .reduce(|sum, value| sum + value)
    }

    /// Returns [`get`](Self::get) as an integer; 0 without samples.
    #[must_use]
    pub fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let value = self.get(name, labels).unwrap_or(0.0);
        assert!(value >= 0.0 && value.fract() == 0.0, "{name}: {value}");
        value as u64
    }

    #[must_use]
    pub fn values(&self, label: &str) -> BTreeSet<&str> {
        let samples = self.samples.iter();
        samples
            .filter_map(|(_, labels, _)| labels.get(label).map(String::as_str))
            .collect()
    }

    pub fn labels(&self) -> impl Iterator<Item = (&str, &Labels)> {
        let samples = self.samples.iter();
        samples.map(|(name, labels, _)| (name.as_str(), labels))
    }

    #[must_use]
    pub fn types(&self) -> &BTreeMap<String, String> {
        &self.types
    }
}

fn labels(mut rest: &str) -> Result<Labels> {
    let mut labels = Labels::new();
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").context("no label")?;
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
        ensure!(!name.is_empty() && name.chars().all(fits), "label {name}");
        let (value, after) = quoted(after)?;
        let before = labels.insert(name.to_owned(), value);
        ensure!(before.is_none(), "label {name} twice");
        rest = match after.strip_prefix(',') {
            Some(after) if !after.is_empty() => after,
            None if after.is_empty() => after,
            _ => bail!("after the label {name}"),
        };
    }
    Ok(labels)
}

fn quoted(text: &str) -> Result<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => match characters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped @ ('\\' | '"'))) => value.push(escaped),
                other => bail!("escaped {other:?}"),
            },
            other => value.push(other),
        }
    }
    bail!("no closing quote")
}

/// Requests a path, and returns the response's head and body.
#[must_use]
pub fn get(address: SocketAddr, path: &str) -> (String, String) {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
}

#[must_use]
pub fn ask(address: SocketAddr, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("a listener");
    stream.write_all(request.as_bytes()).expect("a reader");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (format!("{head}\r\n"), body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_prometheus_takes() {
        let text =
            "# HELP a_total x\n# TYPE a_total counter\na_total{h=\"q\\\"\\n\"} 7\na_total 1\n";
        let page = Exposition::parse(text).unwrap();
        assert_eq!(page.get("a_total", &[]), Some(8.0));
        assert_eq!(page.count("a_total", &[("h", "q\"\n")]), 7);
        assert_eq!(page.get("b", &[]), None);
    }

    #[test]
    fn what_prometheus_does_not_take() {
        for text in [
            "a 1",
            "a 1\n",
            "# TYPE a counter\na x\n",
            "# TYPE a counter\nb 1\n",
            "# TYPE a counter\na 1\na 2\n",
            "# TYPE a counter\n# TYPE a counter\n",
            "# TYPE a counter\na{b=\"c} 1\n",
            "# TYPE a counter\na{b=\"c\",} 1\n",
            "# TYPE a counter\na{b=\"\\x\"} 1\n",
            "# TYPE a histogram\na_count 2\na_sum 1\na_bucket{le=\"+Inf\"} 1\n",
            "# TYPE a histogram\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 1\n",
        ] {
            assert!(Exposition::parse(text).is_err(), "{text}");
        }
    }
}
