//! Choice between in-capsule and separate data for small writes.
//!
//! A capsule with data that exceeds a packet takes two packets of different length and cannot share
//! a datagram with others. Without data, capsules share datagrams, and so do the controller's RDMA
//! READs and their responses. Separate data costs each command a round trip, which a deep queue
//! hides if the controller is near.

use std::time::Duration;

/// Commands in flight from which a queue counts as deep.
const DEEP: usize = 7;
/// Maximum round trip per command in flight for separate data. Measured: in-capsule data reaches at
/// most 203,000 writes per second, so longer round trips perform worse than that.
const NEAR: Duration = Duration::from_nanos(2500);
/// Consecutive commands on a shallow queue after which the queue no longer counts as deep.
const CALM: u8 = 64;

/// Recent depth of a queue.
#[derive(Debug, Default)]
pub(super) struct Spread {
    /// Commands until the queue counts as shallow.
    left: u8,
}

impl Spread {
    /// Updates the state before a command with data; returns true if its data should be sent
    /// separately.
    pub(super) fn next(&mut self, unanswered: usize, round_trip: Option<Duration>) -> bool {
        let near = NEAR * unanswered as u32;
        if unanswered >= DEEP && round_trip.is_some_and(|round_trip| round_trip < near) {
            self.left = CALM;
        } else {
            self.left = self.left.saturating_sub(1);
        }
        self.left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Option<Duration> = Some(Duration::from_micros(1));

    #[test]
    fn a_queue_is_deep_until_it_has_not_been_for_a_while() {
        let mut spread = Spread::default();
        assert!((0..DEEP).all(|unanswered| !spread.next(unanswered, AT_ONCE)));
        assert!(spread.next(DEEP, AT_ONCE));
        // Simulates a queue that refills after all commands completed at once.
        for _ in 0..10 {
            assert!((0..=DEEP).all(|unanswered| spread.next(unanswered, AT_ONCE)));
        }
        assert!((1..CALM).all(|_| spread.next(0, AT_ONCE)));
        assert!(!spread.next(0, AT_ONCE));
        assert!(!spread.next(DEEP - 1, AT_ONCE));
    }

    #[test]
    fn a_controller_far_away_is_spared_a_trip() {
        let mut spread = Spread::default();
        let far = Some(Duration::from_millis(1));
        assert!(!spread.next(127, far));
        assert!(
            spread.next(1000, far),
            "more are under way than a capsule's way carries"
        );
        let mut spread = Spread::default();
        assert!(!spread.next(127, None), "nothing is known yet");
    }
}
