//! Identifiers of reactor objects, without dependencies on the objects.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct QpairId {
    pub(crate) index: u32,
    /// Generation counter of the index.
    pub(crate) generation: u32,
}

impl QpairId {
    /// Value that names no queue pair.
    pub(crate) const NONE: Self = Self {
        index: u32::MAX,
        generation: 0,
    };
}

/// Index of a host's share of the requests and data buffers of a reactor.
pub(crate) type ShareId = usize;
