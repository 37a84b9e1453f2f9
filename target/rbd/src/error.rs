//! What can go wrong with an image, and what to do about it.

/// An image could not be opened. Says what was wrong and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct OpenError {
    what: String,
}

impl OpenError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }
}

/// A function of C returned this: its error, if it is one.
pub(crate) fn check(returned: i32) -> Result<(), i32> {
    if returned < 0 { Err(-returned) } else { Ok(()) }
}

/// The system's words for an errno.
pub(crate) fn words(errno: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(errno)
}
