//! Choice between in-capsule data and RDMA READ for small writes, with UDP segmentation offload.
//!
//! If data fits in one packet, but not together with the SQE, a capsule with the data takes two
//! packets of unequal length. These cannot share a super-packet with packets of other commands, as
//! capsules without data, READ requests and READ responses do. But RDMA READ adds a round trip,
//! which matters less with many commands in flight and a short path.

use std::time::Duration;

/// Minimum commands in flight for RDMA READ.
const DEEP: usize = 7;
/// RDMA READ is used while the round trip, divided by the number of commands in flight, is below
/// this limit. A write by RDMA READ takes two round trips: at this limit, 200,000 writes/s, about as
/// many as with in-capsule data.
const NEAR: Duration = Duration::from_nanos(2500);
/// Consecutive commands below [`DEEP`] or beyond [`NEAR`] after which RDMA READ is no longer used.
const CALM: u8 = 64;

#[derive(Debug, Default)]
pub(super) struct Spread {
    /// Commands that may still use RDMA READ, at most [`CALM`].
    left: u8,
}

impl Spread {
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
