//! What time it is: the system's time, or a simulation's.
//!
//! Whoever waits or times out holds a [`Clock`] and asks no other. So a test can
//! let minutes pass in a moment, and the same run come again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A clock. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    /// `None` is the system's.
    simulated: Option<Arc<Hands>>,
}

/// A clock that only its owner moves.
#[derive(Debug)]
struct Hands {
    start: Instant,
    elapsed_ns: AtomicU64,
}

impl Clock {
    /// One that stands still until [`Clock::advance_to`] moves it.
    #[must_use]
    pub fn simulated() -> Self {
        let hands = Hands {
            start: Instant::now(),
            elapsed_ns: AtomicU64::new(0),
        };
        Self {
            simulated: Some(Arc::new(hands)),
        }
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Instant {
        match &self.simulated {
            None => Instant::now(),
            Some(hands) => {
                let elapsed_ns = hands.elapsed_ns.load(Ordering::Acquire);
                hands.start + Duration::from_nanos(elapsed_ns)
            }
        }
    }

    /// Moves a simulated clock forward.
    ///
    /// # Panics
    /// If it is the system's, or `now` is in its past.
    pub fn advance_to(&self, now: Instant) {
        let hands = self.simulated.as_ref();
        let hands = hands.expect("nobody moves the system's clock");
        let elapsed_ns = now.duration_since(hands.start).as_nanos() as u64;
        let before = hands.elapsed_ns.swap(elapsed_ns, Ordering::AcqRel);
        assert!(before <= elapsed_ns, "time goes forward");
    }
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
}
