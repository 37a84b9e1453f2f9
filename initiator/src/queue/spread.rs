//! Whether the data of small writes travels in their capsules or apart from them.
//!
//! A capsule whose data makes it longer than a packet is two packets of unlike length.
//! Where packets of one length share a datagram, such a capsule shares it with no other. Without
//! data, capsules share datagrams, and so do the controller's RDMA READs and what they bring. That
//! costs a command another trip. A queue with many commands does not wait for that, if the
//! controller is near.

use std::time::Duration;

/// Commands without an answer from which on a queue counts as deep.
const DEEP: usize = 7;
/// For each of them the controller may be so far away, there and back. In their capsules 203 thousand
/// writes a second were the most, as measured: beyond that distance two trips bring fewer.
const NEAR: Duration = Duration::from_nanos(2500);
/// So many commands in a row that find fewer, and it does not.
const CALM: u8 = 64;

/// What a queue remembers of its depth.
#[derive(Debug, Default)]
pub(super) struct Spread {
    /// Commands until it is deep no longer.
    left: u8,
}

impl Spread {
    /// A command with data is about to be sent to a queue with so many unanswered; whether the
    /// data goes apart.
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
        // As a queue fills again whose commands were all answered at once.
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
