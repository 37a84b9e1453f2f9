use std::time::{Duration, Instant};

use super::Result;
use cairn_bench::object::Object;

#[derive(Debug, Clone)]
pub(super) struct Samples {
    pub(super) what: &'static str,
    pub(super) bytes: u32,
    pub(super) path: &'static str,
    /// Latencies in nanoseconds, ascending.
    ns: Vec<u64>,
}

/// Limits of a measurement: it ends after `time`, but repeats at least `times_min` and at most
/// `times_max` times.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    pub(super) time: Duration,
    pub(super) times_min: usize,
    pub(super) times_max: usize,
}

impl Samples {
    pub(super) fn of(
        what: &'static str,
        bytes: u32,
        path: &'static str,
        effort: Effort,
        mut once: impl FnMut() -> Result<Duration>,
    ) -> Result<Self> {
        let until = Instant::now() + effort.time;
        let mut ns = Vec::with_capacity(effort.times_max);
        while ns.len() < effort.times_max && (ns.len() < effort.times_min || Instant::now() < until)
        {
            ns.push(once()?.as_nanos() as u64);
        }
        ns.sort_unstable();
        Ok(Self {
            what,
            bytes,
            path,
            ns,
        })
    }

    pub(super) fn percentile_us(&self, percent: usize) -> f64 {
        let last = self.ns.len() - 1;
        self.ns[last * percent / 100] as f64 / 1e3
    }

    pub(super) fn median_us(&self) -> f64 {
        self.percentile_us(50)
    }

    pub(super) fn cells(&self) -> Vec<String> {
        let us = |percent| format!("{:.1}", self.percentile_us(percent));
        vec![
            self.what.to_owned(),
            self.bytes.to_string(),
            us(0),
            us(50),
            us(99),
            self.ns.len().to_string(),
            self.path.to_owned(),
        ]
    }

    pub(super) fn object(&self) -> Object {
        Object::new()
            .with("what", self.what)
            .with("bytes", self.bytes)
            .with("min_us", self.percentile_us(0))
            .with("p50_us", self.median_us())
            .with("p99_us", self.percentile_us(99))
            .with("samples", self.ns.len())
            .with("path", self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EFFORT: Effort = Effort {
        time: Duration::ZERO,
        times_min: 101,
        times_max: 1000,
    };

    #[test]
    fn percentiles_are_of_what_was_timed() {
        let mut us = 0;
        let samples = Samples::of("x", 0, "", EFFORT, || {
            us += 1;
            Ok(Duration::from_micros(us))
        });
        let samples = samples.unwrap();
        assert_eq!(samples.percentile_us(0), 1.0);
        assert_eq!(samples.median_us(), 51.0);
        assert_eq!(samples.percentile_us(99), 100.0);
    }
}
