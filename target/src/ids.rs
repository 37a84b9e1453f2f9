//! What reactors call their things: names that every module may hold, without the things.

/// A queue pair of one reactor, and no other that was in its place before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct QpairId {
    /// Its place in the reactor's table.
    pub(crate) index: u32,
    /// How many were in that place before.
    pub(crate) generation: u32,
}

impl QpairId {
    /// Not any.
    pub(crate) const NONE: Self = Self {
        index: u32::MAX,
        generation: 0,
    };
}

/// A host's share of a reactor, by its place.
pub(crate) type ShareId = usize;
