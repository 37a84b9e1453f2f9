//! Effect declared by each control method, by which the dispatcher refuses, logs and rate-limits requests. A method
//! without a declared effect is refused as unknown.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Reads,
    /// Reloads the configuration file; allowed on a read-only socket.
    Reloads,
    Changes,
}

pub(super) type Declared = &'static [(&'static str, Effect)];
