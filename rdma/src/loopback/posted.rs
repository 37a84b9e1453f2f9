use std::iter::Sum;

/// Work counters of a device, summed over its open endpoints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Posted {
    /// Chains posted to send queues. An adapter needs one doorbell for each.
    pub send_posts: u64,
    /// Work requests in the send chains.
    pub sends: u64,
    /// Chains posted to shared receive queues.
    pub receive_posts: u64,
    /// Receives in the receive chains.
    pub receives: u64,
    /// Polled completions of receives, and of send work that was signaled or failed.
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
