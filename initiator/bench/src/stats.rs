use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::lane::Direction;

pub(super) const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];
const LATENCY_MAX_NS: u64 = 60_000_000_000;
/// Period of bandwidth and IOPS samples (fio's `bwavgtime`).
const SAMPLE: Duration = Duration::from_millis(500);

/// Minimum, maximum, mean and standard deviation of a series (Welford's algorithm).
#[derive(Debug, Clone, Copy, Default)]
pub struct Series {
    pub(super) count: u64,
    pub(super) min: f64,
    /// Maximum, 0 without values.
    pub max: f64,
    pub(super) mean: f64,
    m2: f64,
}

impl Series {
    pub(super) fn add(&mut self, value: f64) {
        self.min = if self.count == 0 {
            value
        } else {
            self.min.min(value)
        };
        self.max = self.max.max(value);
        self.count += 1;
        let delta = value - self.mean;
        self.mean += delta / self.count as f64;
        self.m2 += delta * (value - self.mean);
    }

    pub(super) fn deviation(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        (self.m2 / (self.count - 1) as f64).sqrt()
    }

    pub(super) fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = *other;
            return;
        }
        let (a, b) = (self.count as f64, other.count as f64);
        let delta = other.mean - self.mean;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.mean += delta * b / (a + b);
        self.m2 += other.m2 + delta * delta * a * b / (a + b);
        self.count += other.count;
    }

    fn side_by_side(&mut self, other: &Self) {
        if self.count == 0 {
            *self = *other;
            return;
        }
        let deviation = self.deviation().hypot(other.deviation());
        self.min += other.min;
        self.max += other.max;
        self.mean += other.mean;
        self.count += other.count;
        self.m2 = deviation * deviation * (self.count.max(2) - 1) as f64;
    }
}

#[derive(Debug, Clone)]
pub struct DirectionStats {
    pub ios: u64,
    pub(super) bytes: u64,
    pub(super) runtime: Duration,
    pub(super) slat_ns: Series,
    /// Latency from the end of submission to completion.
    pub clat_ns: Series,
    pub(super) lat_ns: Series,
    pub(super) clat_histogram: Histogram<u64>,
    /// Bandwidth samples in KiB/s.
    pub(super) bw_samples: Series,
    pub(super) iops_samples: Series,
    sample: Sample,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    since: Option<Instant>,
    ios: u64,
    bytes: u64,
}

impl Default for DirectionStats {
    fn default() -> Self {
        Self {
            ios: 0,
            bytes: 0,
            runtime: Duration::ZERO,
            slat_ns: Series::default(),
            clat_ns: Series::default(),
            lat_ns: Series::default(),
            clat_histogram: Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)
                .expect("the bounds are right"),
            bw_samples: Series::default(),
            iops_samples: Series::default(),
            sample: Sample::default(),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) start: Instant,
    pub(super) issued: Instant,
    pub(super) done: Instant,
}

impl Times {
    pub(super) fn latency(&self) -> Duration {
        self.done.saturating_duration_since(self.start)
    }
}

impl DirectionStats {
    fn record(&mut self, bytes: u64, times: Times) {
        let ns = |duration: Duration| duration.as_nanos() as u64;
        let slat = ns(times.issued.saturating_duration_since(times.start));
        let clat = ns(times.done.saturating_duration_since(times.issued));
        self.ios += 1;
        self.bytes += bytes;
        self.slat_ns.add(slat as f64);
        self.clat_ns.add(clat as f64);
        self.lat_ns.add(ns(times.latency()) as f64);
        self.clat_histogram.saturating_record(clat);
        self.sample.ios += 1;
        self.sample.bytes += bytes;
        let since = *self.sample.since.get_or_insert(times.start);
        let elapsed = times.done.saturating_duration_since(since);
        if elapsed >= SAMPLE {
            let seconds = elapsed.as_secs_f64();
            self.bw_samples
                .add(self.sample.bytes as f64 / 1024.0 / seconds);
            self.iops_samples.add(self.sample.ios as f64 / seconds);
            self.sample = Sample {
                since: Some(times.done),
                ..Sample::default()
            };
        }
    }

    #[must_use]
    pub fn iops(&self) -> f64 {
        per_second(self.ios, self.runtime)
    }

    #[must_use]
    pub fn bandwidth(&self) -> f64 {
        per_second(self.bytes, self.runtime)
    }

    /// Percentile of the completion latency in nanoseconds.
    #[must_use]
    pub fn clat_percentile_ns(&self, percent: f64) -> u64 {
        self.clat_histogram.value_at_percentile(percent)
    }

    fn merge(&mut self, other: &Self) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.runtime = self.runtime.max(other.runtime);
        self.slat_ns.merge(&other.slat_ns);
        self.clat_ns.merge(&other.clat_ns);
        self.lat_ns.merge(&other.lat_ns);
        self.clat_histogram += &other.clat_histogram;
        self.bw_samples.side_by_side(&other.bw_samples);
        self.iops_samples.side_by_side(&other.iops_samples);
    }
}

pub(super) fn per_second(count: u64, time: Duration) -> f64 {
    if time.is_zero() {
        0.0
    } else {
        count as f64 / time.as_secs_f64()
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Steps([u64; 7]);

impl Steps {
    pub(super) fn add_depth(&mut self, depth: usize) {
        let step = depth.max(1).ilog2().min(6);
        self.0[step as usize] += 1;
    }

    pub(super) fn add_batch(&mut self, batch: usize) {
        let step = match batch {
            0 => 0,
            1..=4 => 1,
            5..=8 => 2,
            9..=16 => 3,
            17..=32 => 4,
            33..=64 => 5,
            _ => 6,
        };
        self.0[step] += 1;
    }

    pub(super) fn percent(&self) -> [f64; 7] {
        let sum: u64 = self.0.iter().sum();
        self.0.map(|count| share(count, sum))
    }
}

/// Returns `count` in percent of `of`: at least 0.01, as in fio, unless `count` is 0.
fn share(count: u64, of: u64) -> f64 {
    if count == 0 {
        return 0.0;
    }
    (count as f64 * 100.0 / of as f64).max(0.01)
}

/// Upper bounds of fio's latency classes in ns and us.
const CLASSES: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];
/// Upper bounds of fio's latency classes in ms. One more class has no upper bound.
const CLASSES_MS: [u64; 11] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000];

#[derive(Debug)]
pub(super) struct LatencyClasses {
    pub(super) ns: Vec<(String, f64)>,
    pub(super) us: Vec<(String, f64)>,
    pub(super) ms: Vec<(String, f64)>,
}

impl LatencyClasses {
    fn of(histogram: &Histogram<u64>) -> Self {
        let mut below = 0;
        let mut class = |name: String, end_ns: u64| {
            let up_to = histogram.count_between(0, end_ns);
            let count = up_to - below;
            below = up_to;
            (name, share(count, histogram.len()))
        };
        let mut classes = |ends: &[u64], unit_ns: u64| -> Vec<_> {
            let class = |end: &u64| class(end.to_string(), end * unit_ns);
            ends.iter().map(class).collect()
        };
        let (ns, us) = (classes(&CLASSES, 1), classes(&CLASSES, 1_000));
        let mut ms = classes(&CLASSES_MS, 1_000_000);
        ms.push(class(">=2000".to_owned(), u64::MAX));
        Self { ns, us, ms }
    }
}

/// Statistics of one or several copies.
#[derive(Debug, Clone, Default)]
pub struct JobStats {
    pub(super) directions: [DirectionStats; 2],
    pub(super) depth: Steps,
    pub(super) submit: Steps,
    pub(super) complete: Steps,
    pub verified: u64,
    pub bad_blocks: u64,
}

impl JobStats {
    #[must_use]
    pub fn of(&self, direction: Direction) -> &DirectionStats {
        &self.directions[direction as usize]
    }

    pub(super) fn latency_classes(&self) -> LatencyClasses {
        let [read, write] = &self.directions;
        let mut histogram = read.clat_histogram.clone();
        histogram += &write.clat_histogram;
        LatencyClasses::of(&histogram)
    }

    pub(super) fn record(&mut self, direction: Direction, bytes: u64, times: Times) {
        self.directions[direction as usize].record(bytes, times);
    }

    pub(super) fn set_runtime(&mut self, runtime: Duration) {
        for direction in &mut self.directions {
            if direction.ios > 0 {
                direction.runtime = runtime;
            }
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.directions.iter_mut().zip(&other.directions) {
            mine.merge(theirs);
        }
        for (mine, theirs) in [
            (&mut self.depth, &other.depth),
            (&mut self.submit, &other.submit),
            (&mut self.complete, &other.complete),
        ] {
            for (count, more) in mine.0.iter_mut().zip(theirs.0) {
                *count += more;
            }
        }
        self.verified += other.verified;
        self.bad_blocks += other.bad_blocks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_what_the_books_say() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        let mut whole = Series::default();
        values.iter().for_each(|&v| whole.add(v));
        assert_eq!((whole.min, whole.max, whole.mean), (2.0, 9.0, 5.0));
        assert!((whole.deviation() - (32.0f64 / 7.0).sqrt()).abs() < 1e-9);
        let (mut a, mut b) = (Series::default(), Series::default());
        values[..3].iter().for_each(|&v| a.add(v));
        values[3..].iter().for_each(|&v| b.add(v));
        a.merge(&b);
        assert!((a.deviation() - whole.deviation()).abs() < 1e-9);
        assert!((a.mean - 5.0).abs() < 1e-9);
    }

    #[test]
    fn latencies_fall_into_the_classes_of_fio() {
        let mut stats = DirectionStats::default();
        let start = Instant::now();
        for us in [3, 240, 251, 1000, 1002, 5_000_000] {
            let done = start + Duration::from_micros(us);
            let issued = start;
            stats.record(
                512,
                Times {
                    start,
                    issued,
                    done,
                },
            );
        }
        let classes = LatencyClasses::of(&stats.clat_histogram);
        let of =
            |table: &[(String, f64)], name: &str| table.iter().find(|(n, _)| n == name).unwrap().1;
        for (table, class) in [
            (&classes.us, "4"),
            (&classes.us, "250"),
            (&classes.us, "500"),
            (&classes.us, "1000"),
            (&classes.ms, "2"),
            (&classes.ms, ">=2000"),
        ] {
            assert!((of(table, class) - 100.0 / 6.0).abs() < 1e-9, "{class}");
        }
    }

    #[test]
    fn depths_and_batches_have_fios_steps() {
        let mut depth = Steps::default();
        [1, 2, 3, 32, 1000]
            .into_iter()
            .for_each(|d| depth.add_depth(d));
        assert_eq!(depth.0, [1, 2, 0, 0, 0, 1, 1]);
        let mut batch = Steps::default();
        [1, 4, 5, 64, 65]
            .into_iter()
            .for_each(|b| batch.add_batch(b));
        assert_eq!(batch.0, [0, 2, 1, 0, 0, 1, 1]);
    }

    #[test]
    fn half_seconds_make_samples() {
        let mut stats = DirectionStats::default();
        let start = Instant::now();
        for n in 0..21 {
            let done = start + Duration::from_millis(100 * n);
            let issued = done - Duration::from_micros(if n == 0 { 0 } else { 50 });
            stats.record(
                1024,
                Times {
                    start: issued,
                    issued,
                    done,
                },
            );
        }
        assert_eq!(stats.bw_samples.count, 4);
        assert!((9.0..=12.1).contains(&stats.bw_samples.mean));
        assert_eq!(stats.ios, 21);
    }
}
