//! When to stop polling and sleep.
//!
//! Sleeping costs a system call and a wake-up, polling costs the core. So after
//! the last work a reactor polls on for a while, and how long adapts: work that
//! came soon after it fell asleep would have been worth waiting for, so the
//! window grows; a long sleep shows that it was not, so the window goes to 0.
//! A sleep lasts some time longer than there is nothing to do: waking up takes
//! tens of microseconds, at the peer too, who may be asleep for the same reason.
//! So "soon" is several times the largest window, or two sides that wait for
//! each other would keep each other asleep for ever.
//! The administrator sets the largest window (`poll_idle`).

use std::time::{Duration, Instant};

/// The first window after a short sleep.
const WINDOW_MIN: Duration = Duration::from_micros(10);

/// In largest windows: what counts as a short sleep.
const SOON: u32 = 4;

/// How long to poll without work.
#[derive(Debug)]
pub(crate) struct Idle {
    largest: Duration,
    window: Duration,
    since: Option<Instant>,
}

impl Idle {
    /// Windows up to `largest`; 0 sleeps at once, always.
    pub(crate) fn new(largest: Duration) -> Self {
        Self {
            largest,
            window: largest,
            since: None,
        }
    }

    /// There was work.
    pub(crate) fn worked(&mut self) {
        self.since = None;
    }

    /// There was none: whether to sleep now.
    pub(crate) fn should_sleep(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        now.duration_since(since) >= self.window
    }

    /// It slept.
    pub(crate) fn slept(&mut self, duration: Duration) {
        self.since = None;
        self.window = if duration <= self.largest * SOON {
            (self.window * 2).clamp(WINDOW_MIN.min(self.largest), self.largest)
        } else {
            Duration::ZERO
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: Duration = Duration::from_micros(1);

    #[test]
    fn polls_for_its_window_after_work() {
        let mut idle = Idle::new(100 * MICRO);
        let start = Instant::now();
        assert!(!idle.should_sleep(start));
        assert!(!idle.should_sleep(start + 99 * MICRO));
        idle.worked();
        assert!(!idle.should_sleep(start + 150 * MICRO));
        assert!(idle.should_sleep(start + 250 * MICRO));
    }

    #[test]
    fn a_long_sleep_shuts_the_window_and_short_ones_open_it() {
        let mut idle = Idle::new(100 * MICRO);
        idle.slept(Duration::from_secs(1));
        let now = Instant::now();
        assert!(idle.should_sleep(now));
        for window in [10, 20, 40, 80, 100, 100] {
            idle.slept(5 * MICRO);
            assert!(!idle.should_sleep(now));
            assert!(!idle.should_sleep(now + (window - 1) * MICRO), "{window}");
            assert!(idle.should_sleep(now + window * MICRO), "{window}");
        }
    }

    #[test]
    fn without_a_window_it_always_sleeps() {
        let mut idle = Idle::new(Duration::ZERO);
        assert!(idle.should_sleep(Instant::now()));
        idle.slept(Duration::ZERO);
        assert!(idle.should_sleep(Instant::now()));
    }
}
