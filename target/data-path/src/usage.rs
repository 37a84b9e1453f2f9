//! Resource usage of a target, for tests that detect leaks.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    pub queue_pairs: usize,
    pub requests: usize,
    pub buffer_bytes: usize,
    pub capsules: usize,
    /// Receive slots that are not posted.
    pub receives: usize,
    pub shares: usize,
}
