//! Resource usage of a target, for tests that detect leaks.

/// Resources in use by all reactors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Number of queue pairs.
    pub queue_pairs: usize,
    /// Number of requests in use.
    pub requests: usize,
    /// Size of the data buffers in use, in bytes.
    pub buffer_bytes: usize,
    /// Number of capsules that wait for a request.
    pub capsules: usize,
    /// Number of receive slots that are not posted.
    pub receives: usize,
    /// Number of hosts with a share of the data buffers.
    pub shares: usize,
}
