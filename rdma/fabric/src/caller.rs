//! The program that uses this library, and its counterpart: printed commands name them.

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The host.
    Host,
    /// The target.
    Target,
}

/// The program that calls, as people type it, and the one at the other end. No program is named
/// here: each caller supplies the names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// Which end of its connections the caller is.
    pub end: End,
    /// The program that has `doctor` at the host.
    pub host: &'static str,
    /// The program that has `doctor` at the target; its systemd service has the same name.
    pub target: &'static str,
}

impl Caller {
    /// The program that calls.
    #[must_use]
    pub const fn program(self) -> &'static str {
        match self.end {
            End::Host => self.host,
            End::Target => self.target,
        }
    }

    /// A text with the names in the places of PROGRAM and TARGET.
    pub(crate) fn fill(self, text: &str) -> String {
        text.replace("PROGRAM", self.program())
            .replace("TARGET", self.target)
    }
}
