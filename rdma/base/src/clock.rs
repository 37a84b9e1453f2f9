//! Clock of the system or of a simulation.
//!
//! With a [`Clock`], tests of waiting code can skip minutes and repeat a run exactly.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Source of the current time. Clones share state.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    kind: Kind,
}

#[derive(Debug, Clone, Default)]
enum Kind {
    #[default]
    Monotonic,
    Boottime,
    Simulated(Arc<SimulatedTime>),
}

#[derive(Debug)]
struct SimulatedTime {
    start: Instant,
    elapsed_ns: AtomicU64,
    /// Number of clock reads before the scheduled stop, or [`NO_STOP`].
    looks_left: AtomicU64,
    stop_ns: AtomicU64,
}

const NO_STOP: u64 = u64::MAX;

impl Clock {
    /// Returns a system clock that includes suspended time, for deadlines that another machine
    /// measures too.
    #[must_use]
    pub const fn through_suspend() -> Self {
        Self {
            kind: Kind::Boottime,
        }
    }

    /// Returns a clock that moves only by [`Clock::advance_to`] and [`Clock::stop_after`].
    #[must_use]
    pub fn simulated() -> Self {
        let time = SimulatedTime {
            start: Instant::now(),
            elapsed_ns: AtomicU64::new(0),
            looks_left: AtomicU64::new(NO_STOP),
            stop_ns: AtomicU64::new(0),
        };
        Self {
            kind: Kind::Simulated(Arc::new(time)),
        }
    }

    /// Returns the current time.
    #[must_use]
    #[inline]
    pub fn now(&self) -> Instant {
        match &self.kind {
            Kind::Monotonic => Instant::now(),
            Kind::Boottime => boottime(),
            Kind::Simulated(time) => {
                if time.looks_left.load(Ordering::Relaxed) != NO_STOP {
                    time.count_look();
                }
                time.shown()
            }
        }
    }

    /// Returns the current time. [`Self::stop_after`] does not count this read.
    #[must_use]
    #[inline]
    pub fn glance(&self) -> Instant {
        match &self.kind {
            Kind::Monotonic | Kind::Boottime => self.now(),
            Kind::Simulated(time) => time.shown(),
        }
    }

    /// Converts `at` from the default clock, CLOCK_MONOTONIC, to this clock.
    #[must_use]
    pub fn of_default(&self, at: Instant) -> Instant {
        match &self.kind {
            Kind::Boottime => at + boottime().saturating_duration_since(Instant::now()),
            Kind::Monotonic | Kind::Simulated(_) => at,
        }
    }

    /// Moves a simulated clock forward.
    ///
    /// # Panics
    /// The clock is the system's, or `now` is in the past.
    pub fn advance_to(&self, now: Instant) {
        let time = self.simulated_time();
        let elapsed_ns = now.duration_since(time.start).as_nanos() as u64;
        let before = time.elapsed_ns.swap(elapsed_ns, Ordering::AcqRel);
        assert!(before <= elapsed_ns, "time goes forward");
    }

    /// Schedules a jump of a simulated clock by `time` after `looks` more reads, as if the program
    /// had stopped.
    pub fn stop_after(&self, looks: u64, time: Duration) {
        let own = self.simulated_time();
        own.stop_ns.store(time.as_nanos() as u64, Ordering::Relaxed);
        own.looks_left.store(looks, Ordering::Relaxed);
    }

    /// Cancels the jump of the clock scheduled by [`Self::stop_after`]. Returns true if the jump was
    /// pending.
    pub fn forget_stop(&self) -> bool {
        let own = self.simulated_time();
        own.looks_left.swap(NO_STOP, Ordering::Relaxed) != NO_STOP
    }

    fn simulated_time(&self) -> &SimulatedTime {
        let Kind::Simulated(time) = &self.kind else {
            panic!("nothing moves the system's clock")
        };
        time
    }
}

impl SimulatedTime {
    #[inline]
    fn shown(&self) -> Instant {
        self.start + Duration::from_nanos(self.elapsed_ns.load(Ordering::Acquire))
    }

    #[cold]
    fn count_look(&self) {
        let left = self.looks_left.load(Ordering::Relaxed);
        if left == 0 {
            let stop_ns = self.stop_ns.load(Ordering::Relaxed);
            self.elapsed_ns.fetch_add(stop_ns, Ordering::AcqRel);
        }
        let left = left.checked_sub(1).unwrap_or(NO_STOP);
        self.looks_left.store(left, Ordering::Relaxed);
    }
}

fn boottime() -> Instant {
    static FIRST: OnceLock<(Instant, Duration)> = OnceLock::new();
    let since_boot = || {
        let time = clock_gettime(ClockId::Boottime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let (instant, then) = FIRST.get_or_init(|| (Instant::now(), since_boot()));
    *instant + since_boot().saturating_sub(*then)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulated_one_stands_still_until_it_is_moved() {
        let clock = Clock::simulated();
        let start = clock.now();
        assert_eq!(clock.now(), start);
        let later = start + Duration::from_secs(3600);
        let same = clock.clone();
        clock.advance_to(later);
        assert_eq!(same.now(), later);
    }

    #[test]
    fn a_program_that_looks_at_it_can_be_stopped_before_any_look() {
        let clock = Clock::simulated();
        let start = clock.now();
        let minute = Duration::from_secs(60);
        clock.stop_after(2, minute);
        assert_eq!([clock.now(), clock.now(), clock.glance()], [start; 3]);
        assert_eq!(clock.now(), start + minute);
        assert!(!clock.forget_stop());
        assert_eq!(clock.now(), start + minute);
        clock.stop_after(0, minute);
        assert!(clock.forget_stop());
        assert_eq!(clock.now(), start + minute);
    }

    #[test]
    fn the_clock_that_counts_a_suspend_goes_with_the_other() {
        let clock = Clock::through_suspend();
        let before = clock.now();
        let later = Instant::now() + Duration::from_secs(5);
        let shown = clock.of_default(later);
        assert!(shown >= before + Duration::from_secs(4));
        assert!(clock.now() >= before);
    }
}
