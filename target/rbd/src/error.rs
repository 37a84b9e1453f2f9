/// Reason why an image cannot be opened, with the remedy.
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

pub(crate) fn check(returned: i32) -> Result<(), i32> {
    if returned < 0 { Err(-returned) } else { Ok(()) }
}

pub(crate) fn words(errno: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(errno)
}
