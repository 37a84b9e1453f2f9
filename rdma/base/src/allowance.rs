//! Token bucket of a rate limit.

use core::ops::Add;
use core::time::Duration;

/// Time of the system clock or of a protocol state machine.
pub trait Moment: Copy + Add<Duration, Output = Self> {
    /// Returns the time since `earlier`, or zero if `earlier` is later.
    fn since(self, earlier: Self) -> Duration;
}

#[cfg(feature = "std")]
impl Moment for std::time::Instant {
    fn since(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

impl Moment for Duration {
    fn since(self, earlier: Self) -> Duration {
        self.saturating_sub(earlier)
    }
}

/// Token bucket with at most `burst` tokens, which gains one per `interval`.
#[derive(Debug, Clone, Copy)]
pub struct Allowance<T> {
    full_at: Option<T>,
}

impl<T: Moment> Default for Allowance<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Moment> Allowance<T> {
    /// Creates a full bucket.
    #[must_use]
    pub const fn new() -> Self {
        Self { full_at: None }
    }

    /// Takes a token. Returns false if the bucket is empty.
    #[inline]
    pub fn take(&mut self, now: T, burst: u32, interval: Duration) -> bool {
        let granted = self.wait_for(1, now, burst, interval).is_zero();
        if granted {
            self.charge(1, now, burst, interval);
        }
        granted
    }

    /// Returns the time until the bucket has `cost` tokens.
    #[inline]
    pub fn wait_for(&self, cost: u32, now: T, burst: u32, interval: Duration) -> Duration {
        (self.until_full(now) + interval * cost).saturating_sub(interval * burst)
    }

    /// Takes `cost` tokens, or all remaining tokens if there are fewer.
    #[inline]
    pub fn charge(&mut self, cost: u32, now: T, burst: u32, interval: Duration) {
        let missing = self.until_full(now) + interval * cost;
        self.full_at = Some(now + missing.min(interval * burst));
    }

    /// Returns the time until the bucket is full.
    #[inline]
    pub fn until_full(&self, now: T) -> Duration {
        self.full_at.map_or(Duration::ZERO, |at| at.since(now))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const INTERVAL: Duration = Duration::from_millis(10);

    #[test]
    fn so_many_at_once_and_one_in_each_interval() {
        let mut allowance = Allowance::new();
        let now = Instant::now();
        let mut granted = |now| {
            (0..100)
                .filter(|_| allowance.take(now, 5, INTERVAL))
                .count()
        };
        assert_eq!(granted(now), 5);
        assert_eq!(granted(now + INTERVAL / 2), 0);
        assert_eq!(granted(now + INTERVAL), 1);
        assert_eq!(granted(now + 4 * INTERVAL), 3);
        assert_eq!(granted(now + 1000 * INTERVAL), 5, "no more than at first");
    }
}
