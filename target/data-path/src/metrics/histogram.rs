//! Histograms of times, recorded by one thread, read by others. Four buckets per power of two make
//! quantiles accurate to 20 %.

use super::counter::Counter;

/// Log2 of the first bound, 256 ns.
const FIRST: u32 = 8;
/// Log2 of the largest bound, 8.6 s.
const LAST: u32 = 33;
/// Log2 of the buckets per power of two.
const SHARE_BITS: u32 = 2;
const BUCKETS: usize = 1 + (((LAST - FIRST) as usize) << SHARE_BITS) + 1;
const LONGER: usize = BUCKETS - 1;

#[derive(Debug)]
pub struct Histogram {
    counts: [Counter; BUCKETS],
    sum_ns: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Times {
    counts: [u64; BUCKETS],
    sum_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time {
    ns: u64,
    bucket: usize,
}

impl Time {
    #[inline]
    pub(crate) fn of_ns(ns: u64) -> Self {
        Self {
            ns,
            bucket: bucket_of(ns),
        }
    }

    #[inline]
    pub(crate) fn ns(self) -> u64 {
        self.ns
    }
}

/// Upper bounds are inclusive, as in Prometheus.
#[inline]
fn bucket_of(ns: u64) -> usize {
    if ns <= 1 << FIRST {
        return 0;
    }
    let below = ns - 1;
    let power = below.ilog2();
    // The bits after the leading 1 are the bucket's index in its power of two.
    let upper = (below >> (power - SHARE_BITS)) as usize;
    let before = ((power - FIRST) as usize) << SHARE_BITS;
    (1 + before + upper - (1 << SHARE_BITS)).min(LONGER)
}

const fn bound_ns(bucket: usize) -> u64 {
    if bucket == 0 {
        return 1 << FIRST;
    }
    let step = bucket - 1;
    let power = FIRST + (step >> SHARE_BITS) as u32;
    let share = (step & ((1 << SHARE_BITS) - 1)) as u64;
    (1 << power) + ((share + 1) << (power - SHARE_BITS))
}

pub fn bounds_ns() -> impl Iterator<Item = u64> {
    (0..LONGER).map(bound_ns)
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| Counter::default()),
            sum_ns: Counter::default(),
        }
    }
}

impl Histogram {
    #[inline]
    pub(crate) fn record(&self, time: Time) {
        self.counts[time.bucket].add(1);
        self.sum_ns.add(time.ns);
    }

    /// Counts an event of 0 ns.
    #[inline]
    pub(crate) fn record_none(&self) {
        self.counts[0].add(1);
    }

    pub fn read(&self) -> Times {
        Times {
            counts: std::array::from_fn(|bucket| self.counts[bucket].get()),
            sum_ns: self.sum_ns.get(),
        }
    }
}

impl Default for Times {
    fn default() -> Self {
        Self {
            counts: [0; BUCKETS],
            sum_ns: 0,
        }
    }
}

impl Times {
    pub fn add(&mut self, other: &Self) {
        for (own, other) in self.counts.iter_mut().zip(&other.counts) {
            *own += other;
        }
        self.sum_ns += other.sum_ns;
    }

    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|&count| count == 0)
    }

    /// Records each bucket as repetitions of one value, chosen so that the sum is exact.
    pub fn record_in(&self, recorder: &metrics::Histogram) {
        let place = self.place();
        for (bucket, &count) in self.counts.iter().enumerate() {
            if count > 0 {
                let ns = match bucket {
                    LONGER => self.mean_of_longer(place),
                    _ => low_ns(bucket) + place * width_ns(bucket),
                };
                recorder.record_many(ns * 1e-9, count as usize);
            }
        }
    }

    /// Returns the average position of times in their buckets, from 0 (lower bound) to 1.
    fn place(&self) -> f64 {
        let bounded = || self.counts[..LONGER].iter().zip(0..);
        let total = |of: fn(usize) -> f64| -> f64 {
            bounded()
                .map(|(&count, bucket)| count as f64 * of(bucket))
                .sum()
        };
        let longer = self.counts[LONGER] as f64 * low_ns(LONGER);
        let above = self.sum_ns as f64 - total(low_ns) - longer;
        let width = total(width_ns);
        if width == 0.0 {
            return 0.0;
        }
        // The result is clamped, because counts and sum are read at different times, and the sum
        // includes times beyond the last bound.
        (above / width).clamp(0.0, 1.0)
    }

    fn mean_of_longer(&self, place: f64) -> f64 {
        let others: f64 = (0..LONGER)
            .map(|b| self.counts[b] as f64 * (low_ns(b) + place * width_ns(b)))
            .sum();
        let mean = (self.sum_ns as f64 - others) / self.counts[LONGER] as f64;
        mean.max(low_ns(LONGER) + 1.0)
    }
}

fn low_ns(bucket: usize) -> f64 {
    match bucket {
        0 => 0.0,
        _ => bound_ns(bucket - 1) as f64,
    }
}

fn width_ns(bucket: usize) -> f64 {
    bound_ns(bucket) as f64 - low_ns(bucket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::{Arc, Mutex};

    use metrics::HistogramFn;

    #[derive(Default)]
    struct Received(Mutex<Vec<(f64, usize)>>);

    impl HistogramFn for Received {
        fn record(&self, value: f64) {
            self.record_many(value, 1);
        }

        fn record_many(&self, value: f64, count: usize) {
            self.0.lock().unwrap().push((value, count));
        }
    }

    fn recorded(samples: &[u64]) -> Vec<(f64, usize)> {
        let histogram = Histogram::default();
        samples
            .iter()
            .for_each(|&ns| histogram.record(Time::of_ns(ns)));
        let received = Arc::new(Received::default());
        histogram
            .read()
            .record_in(&metrics::Histogram::from_arc(Arc::clone(&received)));
        std::mem::take(&mut received.0.lock().unwrap())
    }

    #[test]
    fn bounds_belong_to_the_bucket_below() {
        let bounds: Vec<u64> = bounds_ns().collect();
        assert_eq!(bounds.len(), LONGER);
        assert_eq!(bounds[..6], [256, 320, 384, 448, 512, 640]);
        assert_eq!(bounds.last(), Some(&(1 << LAST)));
        for (bucket, &bound) in bounds.iter().enumerate() {
            assert_eq!(bucket_of(bound), bucket, "{bound}");
            assert_eq!(bucket_of(bound + 1), bucket + 1, "{bound}");
        }
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(u64::MAX), LONGER);
    }

    #[test]
    fn nothing_is_nothing() {
        assert!(Times::default().is_empty());
        assert!(recorded(&[]).is_empty());
    }

    #[test]
    fn times_add_up() {
        let one = Histogram::default();
        one.record(Time::of_ns(1000));
        let mut sum = one.read();
        sum.add(&one.read());
        assert_eq!(sum.sum_ns, 2000);
        assert_eq!(sum.counts[bucket_of(1000)], 2);
    }

    proptest! {
        #[test]
        fn a_recorder_receives_the_count_the_buckets_and_the_sum(
            samples in proptest::collection::vec(0u64..1 << 36, 1..50)
        ) {
            let values = recorded(&samples);
            let count: usize = values.iter().map(|(_, count)| count).sum();
            prop_assert_eq!(count, samples.len());
            let mut buckets = vec![0; BUCKETS];
            for &(seconds, count) in &values {
                let bucket = bounds_ns().position(|bound| seconds <= bound as f64 * 1e-9);
                buckets[bucket.unwrap_or(LONGER)] += count;
            }
            let mut expected = vec![0; BUCKETS];
            samples.iter().for_each(|&ns| expected[bucket_of(ns)] += 1);
            prop_assert_eq!(buckets, expected);
            let sum: f64 = values.iter().map(|&(value, count)| value * count as f64).sum();
            let truth = samples.iter().sum::<u64>() as f64 * 1e-9;
            prop_assert!((sum - truth).abs() <= truth * 1e-6, "{sum} {truth}");
        }
    }
}
