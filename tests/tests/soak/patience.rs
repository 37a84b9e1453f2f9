//! Timeout that excludes time without CPU.
//!
//! The host in this process loses its association if it gets no CPU for KATO (one second).

use std::fmt;
use std::time::{Duration, Instant};

/// Minimum time between two clock readings that counts as time without CPU: half of KATO.
const GAP: Duration = Duration::from_millis(500);

const RETURN: Duration = Duration::from_secs(3);

const ADDED_MAX: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(crate) struct Patience {
    left: Duration,
    seen: Instant,
    gaps: u32,
    added: Duration,
}

impl Patience {
    pub(crate) fn new(now: Instant, time: Duration) -> Self {
        Self {
            left: time,
            seen: now,
            gaps: 0,
            added: Duration::ZERO,
        }
    }

    pub(crate) fn look(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.seen);
        self.seen = now;
        self.left = self.left.saturating_sub(passed);
        self.answered_after(passed);
    }

    /// Extends the timeout if this process or a target did not run for [`GAP`] or longer.
    pub(crate) fn answered_after(&mut self, passed: Duration) {
        if passed >= GAP {
            let more = (passed + RETURN).min(ADDED_MAX - self.added);
            self.left += more;
            self.added += more;
            self.gaps += 1;
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left.is_zero()
    }
}

impl fmt::Display for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gaps, added, .. } = self;
        write!(
            f,
            "this process or a target did not run for {GAP:?} or longer {gaps} times, and all had \
             {added:.1?} more for that"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(looks: impl IntoIterator<Item = u64>) -> Patience {
        let begun = Instant::now();
        let mut patience = Patience::new(begun, Duration::from_secs(40));
        for at in looks {
            patience.look(begun + Duration::from_millis(at));
        }
        patience
    }

    #[test]
    fn a_late_answer_of_a_target_adds_time() {
        let begun = Instant::now();
        let mut patience = Patience::new(begun, Duration::from_secs(1));
        patience.answered_after(GAP / 2);
        assert_eq!(patience.left, Duration::from_secs(1));
        patience.answered_after(2 * GAP);
        assert_eq!(patience.left, Duration::from_secs(1) + 2 * GAP + RETURN);
    }

    #[test]
    fn a_process_that_runs_has_its_time_and_no_more() {
        let until = |end: u64| (0..=end).step_by(100);
        assert!(!after(until(39_900)).is_over());
        assert!(after(until(40_000)).is_over());
        assert_eq!(after(until(40_000)).gaps, 0);
    }

    #[test]
    fn a_gap_adds_its_time_and_that_of_a_return() {
        let patience = after([100, 30_100, 30_200]);
        assert_eq!(patience.left, Duration::from_millis(39_800) + RETURN);
        assert_eq!(patience.gaps, 1);
        assert!(!after([41_000]).is_over(), "it did not run at all");
    }

    #[test]
    fn gaps_do_not_add_time_without_end() {
        let always_late = after((0..2000).map(|n| n * 1000));
        assert!(always_late.is_over());
        assert_eq!(always_late.added, ADDED_MAX);
    }
}
