//! Retransmission timeout from measured round trips (estimator of RFC 6298).
//!
//! The fixed timeout of InfiniBand is typically half a second; this timer retransmits earlier. But
//! the queue pair breaks only after `retry_count` + 1 fixed timeouts.

use crate::time::Instant;
use core::time::Duration;

const MIN_TIMEOUT: Duration = Duration::from_millis(20);
const FIRST_TIMEOUT: Duration = Duration::from_millis(100);
#[derive(Debug)]
pub(super) struct RoundTrip {
    smoothed: Option<Duration>,
    variation: Duration,
    /// Shortest round trip since the last timeout: the delay without queueing.
    least: Duration,
    /// Doublings of the timeout since the last measurement.
    ///
    /// Only a measurement resets this number (Karn's rule, RFC 6298 section 5). Otherwise, a peer
    /// that always answers late would receive each packet twice.
    backoff: u32,
    limit: Duration,
    /// Packet whose round trip is measured, sent only once (Karn's rule), and its send time.
    sample: Option<(u64, Instant)>,
}

impl RoundTrip {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            smoothed: None,
            variation: Duration::ZERO,
            least: Duration::MAX,
            backoff: 0,
            limit,
            sample: None,
        }
    }

    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    pub(super) fn least(&self) -> Option<Duration> {
        Some(self.least).filter(|&least| least < Duration::MAX)
    }

    pub(super) fn queue(&self) -> Duration {
        let smoothed = self.smoothed.unwrap_or_default();
        smoothed.saturating_sub(self.least)
    }

    pub(super) fn is_queued(&self) -> bool {
        match (self.smoothed, self.least()) {
            (Some(smoothed), Some(least)) => smoothed > least + least / 4,
            _ => true,
        }
    }

    pub(super) fn timeout(&self) -> Duration {
        let base = self
            .smoothed
            .map_or(FIRST_TIMEOUT, |s| (s + 4 * self.variation).max(MIN_TIMEOUT));
        (base * (1 << self.backoff.min(10))).min(self.limit)
    }

    pub(super) fn sent(&mut self, sequence: u64, now: Instant) {
        if self.sample.is_none() {
            self.sample = Some((sequence, now));
        }
    }

    pub(super) fn acknowledged(&mut self, sequence: u64, now: Instant) {
        let Some((_, at)) = self.sample.take_if(|(sample, _)| *sample < sequence) else {
            return;
        };
        self.backoff = 0;
        let measured = now.saturating_duration_since(at);
        self.least = self.least.min(measured);
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(measured);
            self.variation = measured / 2;
            return;
        };
        self.variation = (3 * self.variation + smoothed.abs_diff(measured)) / 4;
        self.smoothed = Some((7 * smoothed + measured) / 8);
    }

    pub(super) fn rewound(&mut self) {
        self.sample = None;
    }

    pub(super) fn expired(&mut self) {
        self.backoff += 1;
        self.least = Duration::MAX;
        self.sample = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_told_from_a_path() {
        let mut round_trip = RoundTrip::new(Duration::from_secs(1));
        let (mut now, mut sequence) = (Instant::START, 0);
        let mut measure = |round_trip: &mut RoundTrip, count, length| {
            for _ in 0..count {
                round_trip.sent(sequence, now);
                now += length;
                sequence += 1;
                round_trip.acknowledged(sequence, now);
            }
        };
        let ms = Duration::from_millis;
        assert!(round_trip.is_queued(), "not known yet");
        measure(&mut round_trip, 20, ms(10));
        assert_eq!(round_trip.least(), Some(ms(10)));
        assert!(!round_trip.is_queued());
        measure(&mut round_trip, 20, ms(20));
        assert!(round_trip.is_queued());
        measure(&mut round_trip, 20, ms(10));
        assert!(!round_trip.is_queued());
        round_trip.expired();
        assert!(round_trip.is_queued(), "not known any more");
        measure(&mut round_trip, 20, ms(20));
        assert!(!round_trip.is_queued(), "the path is longer");
    }
}
