/// End of an NVMe over RDMA connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Host.
    Host,
    /// Target.
    Target,
}

/// End at which the caller runs, and names of the programs at both ends, as typed in commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// End at which the caller runs.
    pub end: End,
    /// Program with a `doctor` command at the host.
    pub host: &'static str,
    /// Program with a `doctor` command at the target; also the name of its systemd service.
    pub target: &'static str,
}

impl Caller {
    /// Returns the name of the calling program.
    #[must_use]
    pub const fn program(self) -> &'static str {
        match self.end {
            End::Host => self.host,
            End::Target => self.target,
        }
    }

    /// Replaces the words PROGRAM and TARGET in a text by program names.
    #[must_use]
    pub fn fill(self, text: &str) -> String {
        text.replace("PROGRAM", self.program())
            .replace("TARGET", self.target)
    }
}
