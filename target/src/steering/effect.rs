//! Effect declared by each control method. The dispatcher uses it to refuse, log and rate-limit requests; it refuses
//! a method without one as unknown.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Reads,
    /// Reloads the configuration file; allowed on a read-only socket.
    Reloads,
    Changes,
}

pub(super) type Declared = &'static [(&'static str, Effect)];
