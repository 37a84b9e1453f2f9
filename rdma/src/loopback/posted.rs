//! What the consumers of a device have handed to it, and taken from it.

use std::iter::Sum;

/// Counts of one device, of all its endpoints that are open. An adapter has the same to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Posted {
    /// Chains that were posted to send queues. A driver rings a doorbell for each.
    pub send_posts: u64,
    /// Work requests in them.
    pub sends: u64,
    /// Chains that were posted to shared receive queues, with a doorbell each.
    pub receive_posts: u64,
    /// Receives in them.
    pub receives: u64,
    /// Completions that were polled: of receives, and of send work that was signaled or failed.
    pub completions: u64,
}

impl Sum for Posted {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, next| Self {
            send_posts: sum.send_posts + next.send_posts,
            sends: sum.sends + next.sends,
            receive_posts: sum.receive_posts + next.receive_posts,
            receives: sum.receives + next.receives,
            completions: sum.completions + next.completions,
        })
    }
}
