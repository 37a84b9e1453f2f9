//! Effect declared by each control method. The dispatcher uses it to refuse, log and budget
//! requests; a method without one does not exist for it.

/// Effect of a method on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Changes nothing.
    Reads,
    /// Reloads the configuration file; allowed on a read-only socket.
    Reloads,
    /// Changes the configuration, the log filter or the connections.
    Changes,
}

/// Methods with their effects, sorted by name.
pub(super) type Declared = &'static [(&'static str, Effect)];
