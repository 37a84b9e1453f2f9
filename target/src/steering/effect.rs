//! The effect that each method declares. The dispatcher refuses, logs and budgets requests by it, and knows no
//! method without one.

/// What a method does to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// It changes nothing.
    Reads,
    /// It has the target read its configuration file again, which a socket that is read-only may do, too.
    Reloads,
    /// It changes the configuration, the log, or who is connected.
    Changes,
}

/// Methods by name, sorted, each with its effect.
pub(super) type Declared = &'static [(&'static str, Effect)];
