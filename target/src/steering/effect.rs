//! Effect of each control method, by which requests are refused, logged and rate-limited.
//! Undeclared methods are unknown.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Reads,
    /// Allowed on a read-only socket.
    Reloads,
    Changes,
}

pub(super) type Declared = &'static [(&'static str, Effect)];
