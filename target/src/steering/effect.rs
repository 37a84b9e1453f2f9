//! Effect of each control method, by which requests are refused and logged, and memory is reserved.
//! Undeclared methods are unknown.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Reads,
    /// Allowed on a read-only socket.
    Reloads,
    Changes,
}

pub(super) type Declared = &'static [(&'static str, Effect)];
