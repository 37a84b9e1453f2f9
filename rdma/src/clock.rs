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
}

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
                let elapsed_ns = time.elapsed_ns.load(Ordering::Acquire);
                time.start + Duration::from_nanos(elapsed_ns)
            }
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
        let Kind::Simulated(time) = &self.kind else {
            panic!("nothing moves the system's clock")
        };
        let elapsed_ns = now.duration_since(time.start).as_nanos() as u64;
        let before = time.elapsed_ns.swap(elapsed_ns, Ordering::AcqRel);
        assert!(before <= elapsed_ns, "time goes forward");
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
