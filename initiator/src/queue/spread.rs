//! Whether the data of small writes travels in their capsules or apart from them.
//!
//! A capsule whose data makes it longer than a packet is two packets of unlike length.
//! Where packets of one length share a datagram, such a capsule shares it with no other. Without
//! data, capsules share datagrams, and so do the controller's RDMA READs and what they bring. That
//! costs a command another trip, which a queue with many commands does not wait for.

/// Commands without an answer from which on a queue counts as deep.
const DEEP: usize = 7;
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
    pub(super) fn next(&mut self, unanswered: usize) -> bool {
        if unanswered >= DEEP {
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

    #[test]
    fn a_queue_is_deep_until_it_has_not_been_for_a_while() {
        let mut spread = Spread::default();
        assert!((0..DEEP).all(|unanswered| !spread.next(unanswered)));
        assert!(spread.next(DEEP));
        // As a queue fills again whose commands were all answered at once.
        for _ in 0..10 {
            assert!((0..=DEEP).all(|unanswered| spread.next(unanswered)));
        }
        assert!((1..CALM).all(|_| spread.next(0)));
        assert!(!spread.next(0));
        assert!(!spread.next(DEEP - 1));
    }
}
