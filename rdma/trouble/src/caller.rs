//! Names of the calling program and its counterpart, for printed commands.

/// End of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Host.
    Host,
    /// Target.
    Target,
}

/// Names of the calling program and of the one at the other end, as typed by users.
///
/// The calling program supplies both names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// Role of the caller in its connections.
    pub end: End,
    /// Program with a `doctor` command at the host.
    pub host: &'static str,
    /// Program with a `doctor` command at the target; its systemd service has the same name.
    pub target: &'static str,
}

impl Caller {
    /// Name of the calling program.
    #[must_use]
    pub const fn program(self) -> &'static str {
        match self.end {
            End::Host => self.host,
            End::Target => self.target,
        }
    }

    /// Replaces PROGRAM and TARGET in a text by the names.
    #[must_use]
    pub fn fill(self, text: &str) -> String {
        text.replace("PROGRAM", self.program())
            .replace("TARGET", self.target)
    }
}
