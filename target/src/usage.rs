//! What a target uses at a time, for tests that look for what is left behind.

/// What a target's reactors use at a time, all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Requests.
    pub requests: usize,
    /// Bytes of data buffers.
    pub buffer_bytes: usize,
    /// Capsules that wait for a request.
    pub capsules: usize,
    /// Receive slots that are not posted.
    pub receives: usize,
    /// Hosts with a share of the data buffers.
    pub shares: usize,
}
