//! What time it is: the system's time, or a simulation's.
//!
//! Code that waits or times out holds a [`Clock`] and uses no other. So a test can
//! let minutes pass in a moment, and the same run come again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// A clock. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    kind: Kind,
}

#[derive(Debug, Clone, Default)]
enum Kind {
    /// CLOCK_MONOTONIC: it stands still while the system is suspended.
    #[default]
    Monotonic,
    /// CLOCK_BOOTTIME.
    Boottime,
    Simulated(Arc<SimulatedTime>),
}

/// A clock that only its owner moves.
#[derive(Debug)]
struct SimulatedTime {
    start: Instant,
    elapsed_ns: AtomicU64,
    /// Looks at it that are left before the next one comes too late; [`NO_STOP`] if none will.
    looks_left: AtomicU64,
    /// By how much it comes too late.
    stop_ns: AtomicU64,
}

/// No look at a clock comes too late.
const NO_STOP: u64 = u64::MAX;

impl Clock {
    /// The system's, which goes on while the system is suspended: for deadlines that
    /// others rely on. The default clock stands still then.
    #[must_use]
    pub const fn through_suspend() -> Self {
        Self {
            kind: Kind::Boottime,
        }
    }

    /// One that stands still until [`Clock::advance_to`] moves it.
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

    /// What time it is.
    #[must_use]
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

    /// What time it is, for what only observes: no look that [`Self::stop_after`] counts.
    #[must_use]
    pub fn glance(&self) -> Instant {
        match &self.kind {
            Kind::Monotonic | Kind::Boottime => self.now(),
            Kind::Simulated(time) => time.shown(),
        }
    }

    /// What this clock will show when the default clock shows `at`: the system's two
    /// clocks are apart by the time that it was suspended.
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
    /// If it is the system's, or `now` is in its past.
    pub fn advance_to(&self, now: Instant) {
        let time = self.simulated_time();
        let elapsed_ns = now.duration_since(time.start).as_nanos() as u64;
        let before = time.elapsed_ns.swap(elapsed_ns, Ordering::AcqRel);
        assert!(before <= elapsed_ns, "time goes forward");
    }

    /// Stops the program that looks at a simulated clock: after so many looks time passes before
    /// the next one. A program notices nothing of a stop but that, so a test that stops it after
    /// each number of looks has stopped it everywhere.
    ///
    /// # Panics
    /// If it is the system's.
    pub fn stop_after(&self, looks: u64, time: Duration) {
        let own = self.simulated_time();
        own.stop_ns.store(time.as_nanos() as u64, Ordering::Relaxed);
        own.looks_left.store(looks, Ordering::Relaxed);
    }

    /// Whether a stop that was asked for is still to come; from now on it is not.
    ///
    /// # Panics
    /// If it is the system's.
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
    fn shown(&self) -> Instant {
        self.start + Duration::from_nanos(self.elapsed_ns.load(Ordering::Acquire))
    }

    /// One more look; lets the time of a stop pass before it if that is due.
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

/// CLOCK_BOOTTIME as an instant: the same as [`Instant::now`] plus the time that the
/// system was suspended since this was first asked.
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
        // Whatever the machine has been through meanwhile, it does not go back.
        assert!(shown >= before + Duration::from_secs(4));
        assert!(clock.now() >= before);
    }
}
