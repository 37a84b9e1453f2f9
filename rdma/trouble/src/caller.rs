/// Side of an NVMe over RDMA connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Sends commands.
    Host,
    /// Executes commands.
    Target,
}

/// Side of the calling program, and the programs' names at both sides, as typed in commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// Caller's side.
    pub end: End,
    /// Host program with a `doctor` command.
    pub host: &'static str,
    /// Target program with a `doctor` command; also the name of its systemd service.
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

    /// Replaces PROGRAM and TARGET in `text` by program names.
    #[must_use]
    pub fn fill(self, text: &str) -> String {
        text.replace("PROGRAM", self.program())
            .replace("TARGET", self.target)
    }
}
