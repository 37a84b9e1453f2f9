//! Metrics page in Prometheus's text format 0.0.4 or OpenMetrics 1.0.0.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use metrics::{
    Counter, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Label, Metadata, Recorder,
    SharedString, Unit,
};

use cairn_data_path::metrics::histogram::bounds_ns;

/// Base-2 logarithms of the first and last bounds of coarse buckets, in nanoseconds.
const COARSE_FIRST: u32 = 10;
const COARSE_LAST: u32 = 32;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Buckets {
    #[default]
    Coarse,
    Fine,
}

impl Buckets {
    fn bounds(self) -> Arc<[f64]> {
        let seconds = |ns: u64| ns as f64 * 1e-9;
        match self {
            Self::Coarse => (COARSE_FIRST..=COARSE_LAST)
                .map(|power| seconds(1 << power))
                .collect(),
            Self::Fine => bounds_ns().map(seconds).collect(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    /// Names of counter families lack `_total`, and the last line is `# EOF`.
    OpenMetrics,
}

#[derive(Debug)]
pub(crate) struct Page {
    bounds: Arc<[f64]>,
    families: Mutex<BTreeMap<String, Family>>,
}

#[derive(Debug, Default)]
struct Family {
    help: String,
    series: Vec<(Vec<Label>, Value)>,
}

#[derive(Debug)]
enum Value {
    Counter(Arc<AtomicU64>),
    Gauge(Arc<Number>),
    Histogram(Arc<Samples>),
}

#[derive(Debug, Default)]
struct Number(Mutex<f64>);

impl GaugeFn for Number {
    fn increment(&self, value: f64) {
        *lock(&self.0) += value;
    }

    fn decrement(&self, value: f64) {
        *lock(&self.0) -= value;
    }

    fn set(&self, value: f64) {
        *lock(&self.0) = value;
    }
}

#[derive(Debug)]
struct Samples {
    bounds: Arc<[f64]>,
    counted: Mutex<(Vec<u64>, f64)>,
}

impl Samples {
    fn new(bounds: &Arc<[f64]>) -> Self {
        Self {
            bounds: Arc::clone(bounds),
            counted: Mutex::new((vec![0; bounds.len() + 1], 0.0)),
        }
    }
}

impl HistogramFn for Samples {
    fn record(&self, value: f64) {
        self.record_many(value, 1);
    }

    fn record_many(&self, value: f64, count: usize) {
        let bucket = self.bounds.partition_point(|&bound| bound < value);
        let (counts, sum) = &mut *lock(&self.counted);
        counts[bucket] += count as u64;
        *sum += value * count as f64;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Page {
    pub(crate) fn new(buckets: Buckets) -> Self {
        Self {
            bounds: buckets.bounds(),
            families: Mutex::default(),
        }
    }

    fn add(&self, key: &Key, value: Value) {
        let mut families = lock(&self.families);
        let family = families.entry(key.name().to_owned()).or_default();
        family.series.push((key.labels().cloned().collect(), value));
    }

    fn describe(&self, name: &KeyName, help: &str) {
        let mut families = lock(&self.families);
        let family = families.entry(name.as_str().to_owned()).or_default();
        help.clone_into(&mut family.help);
    }

    pub(crate) fn write(self, format: Format) -> String {
        let mut text = String::new();
        let families = self.families.into_inner();
        for (name, family) in families.unwrap_or_else(PoisonError::into_inner) {
            if !family.series.is_empty() {
                let _ = family.write(&name, format, &mut text);
            }
        }
        if format == Format::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }
}

impl Recorder for Page {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let value = Arc::new(AtomicU64::new(0));
        self.add(key, Value::Counter(Arc::clone(&value)));
        Counter::from_arc(value)
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let value = Arc::new(Number::default());
        self.add(key, Value::Gauge(Arc::clone(&value)));
        Gauge::from_arc(value)
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let value = Arc::new(Samples::new(&self.bounds));
        self.add(key, Value::Histogram(Arc::clone(&value)));
        Histogram::from_arc(value)
    }
}

impl Family {
    fn write(&self, name: &str, format: Format, to: &mut String) -> fmt::Result {
        let (family, quotes) = match format {
            Format::Text => (name, false),
            Format::OpenMetrics => (name.trim_end_matches("_total"), true),
        };
        if !self.help.is_empty() {
            writeln!(to, "# HELP {family} {}", Escaped(&self.help, quotes))?;
        }
        writeln!(to, "# TYPE {family} {}", self.kind(name))?;
        for (labels, value) in &self.series {
            match value {
                Value::Counter(count) => {
                    let count = count.load(Ordering::Relaxed);
                    writeln!(to, "{name}{} {count}", Labels(labels, None))?;
                }
                Value::Gauge(number) => {
                    writeln!(to, "{name}{} {}", Labels(labels, None), lock(&number.0))?;
                }
                Value::Histogram(samples) => samples.write(name, labels, to)?,
            }
        }
        Ok(())
    }

    /// A gauge named `*_total` is a counter in seconds (`Reporter::count_ns`).
    fn kind(&self, name: &str) -> &'static str {
        match self.series.first() {
            Some((_, Value::Histogram(_))) => "histogram",
            Some((_, Value::Gauge(_))) if !name.ends_with("_total") => "gauge",
            _ => "counter",
        }
    }
}

impl Samples {
    fn write(&self, name: &str, labels: &[Label], to: &mut String) -> fmt::Result {
        let (counts, sum) = &*lock(&self.counted);
        let mut total = 0;
        for (bucket, count) in counts.iter().enumerate() {
            total += count;
            let bound = self.bounds.get(bucket);
            let bound = bound.map_or("+Inf".to_owned(), |bound| seconds(*bound));
            let labels = Labels(labels, Some(&bound));
            writeln!(to, "{name}_bucket{labels} {total}")?;
        }
        let labels = Labels(labels, None);
        writeln!(to, "{name}_sum{labels} {sum}")?;
        writeln!(to, "{name}_count{labels} {total}")
    }
}

fn seconds(bound: f64) -> String {
    let text = format!("{bound:.9}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

struct Labels<'a>(&'a [Label], Option<&'a str>);

impl fmt::Display for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = self.0.iter().map(|label| (label.key(), label.value()));
        let mut opening = '{';
        for (name, value) in own.chain(self.1.map(|bound| ("le", bound))) {
            write!(f, "{opening}{name}=\"{}\"", Escaped(value, true))?;
            opening = ',';
        }
        if opening == ',' {
            f.write_str("}")
        } else {
            Ok(())
        }
    }
}

struct Escaped<'a>(&'a str, bool);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '"' if self.1 => f.write_str("\\\"")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics::Level;

    const METADATA: Metadata<'_> = Metadata::new("test", Level::INFO, None);

    fn key(name: &'static str, labels: &[(&'static str, &'static str)]) -> Key {
        let labels: Vec<Label> = labels.iter().map(|&(k, v)| Label::new(k, v)).collect();
        Key::from_parts(name, labels)
    }

    #[test]
    fn a_page_as_prometheus_reads_it() {
        let page = Page::new(Buckets::Coarse);
        page.describe_counter("a_total".into(), None, "two\nlines".into());
        page.describe_gauge("unused".into(), None, "never seen".into());
        page.register_counter(
            &key("a_total", &[("host", "a\"b\\c\nd"), ("n", "1")]),
            &METADATA,
        )
        .absolute(7);
        page.register_gauge(&key("b", &[]), &METADATA).set(0.5);
        page.register_gauge(&key("c_seconds_total", &[]), &METADATA)
            .set(1.25);
        let text = page.write(Format::Text);
        let expected = "\
# HELP a_total two\\nlines
# TYPE a_total counter
a_total{host=\"a\\\"b\\\\c\\nd\",n=\"1\"} 7
# TYPE b gauge
b 0.5
# TYPE c_seconds_total counter
c_seconds_total 1.25
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_page_as_openmetrics_has_it() {
        let page = Page::new(Buckets::Coarse);
        page.describe_counter("a_total".into(), None, "in \"quotes\"".into());
        page.register_counter(&key("a_total", &[("n", "1")]), &METADATA)
            .absolute(7);
        page.register_gauge(&key("b", &[]), &METADATA).set(0.5);
        page.register_gauge(&key("c_seconds_total", &[]), &METADATA)
            .set(1.25);
        let expected = "\
# HELP a in \\\"quotes\\\"
# TYPE a counter
a_total{n=\"1\"} 7
# TYPE b gauge
b 0.5
# TYPE c_seconds counter
c_seconds_total 1.25
# EOF
";
        assert_eq!(page.write(Format::OpenMetrics), expected);
    }

    #[test]
    fn buckets_are_cumulative_and_bounds_belong_to_them() {
        let page = Page::new(Buckets::Coarse);
        let histogram = page.register_histogram(&key("t", &[("op", "read")]), &METADATA);
        histogram.record_many(1024.0 * 1e-9, 2);
        histogram.record(1025.0 * 1e-9);
        histogram.record(100.0);
        let text = page.write(Format::Text);
        for line in [
            "t_bucket{op=\"read\",le=\"0.000001024\"} 2",
            "t_bucket{op=\"read\",le=\"0.000002048\"} 3",
            "t_bucket{op=\"read\",le=\"4.294967296\"} 3",
            "t_bucket{op=\"read\",le=\"+Inf\"} 4",
            "t_count{op=\"read\"} 4",
        ] {
            assert!(
                text.lines().any(|own| own == line),
                "{line} is not in\n{text}"
            );
        }
        assert_eq!(text.matches("_bucket").count(), 24);
    }

    #[test]
    fn fine_bounds_include_the_coarse_ones() {
        let (coarse, fine) = (Buckets::Coarse.bounds(), Buckets::Fine.bounds());
        assert!(coarse.iter().all(|bound| fine.contains(bound)));
        assert!(fine.len() > 4 * coarse.len());
    }
}
