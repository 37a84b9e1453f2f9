use std::io;

use cairn_initiator::HostError;

/// Error that ends or prevents the attachment of a disk.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Error of the host.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A system call failed.
    #[error("{what}: {source}")]
    Os {
        /// The step that failed, and the object.
        what: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// The disk cannot be attached in this way.
    #[error("{0}")]
    Unsupported(String),
}

impl Error {
    pub(crate) fn os(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Os {
            what: what.into(),
            source: source.into(),
        }
    }
}
