//! Token bucket with a burst limit and a refill interval.

use core::ops::Add;
use core::time::Duration;

/// Point in time of the system clock or of a protocol state machine.
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

/// Token bucket.
#[derive(Debug, Clone, Copy)]
pub struct Allowance<T> {
    taken: u32,
    refilled_at: Option<T>,
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
        Self {
            taken: 0,
            refilled_at: None,
        }
    }

    /// Takes a token and returns true if fewer than `limit` tokens are missing.
    ///
    /// One token is refilled after each `interval`.
    #[inline]
    pub fn take(&mut self, now: T, limit: u32, interval: Duration) -> bool {
        let refilled_at = *self.refilled_at.get_or_insert(now);
        let passed = now.since(refilled_at);
        let back = (passed.as_nanos() / interval.as_nanos()).min(u128::from(self.taken)) as u32;
        self.taken -= back;
        self.refilled_at = Some(if self.taken == 0 {
            now
        } else {
            refilled_at + interval * back
        });
        let granted = self.taken < limit;
        self.taken += u32::from(granted);
        granted
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
