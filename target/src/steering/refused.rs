//! Why a change is not made, and what its client is answered.

use cairn_config::{Config, EditError};
use cairn_control::Error;
use rustix::io::Errno;

use super::file::WriteError;
use crate::server::ReloadError;

/// Why changes that were to be made together were not.
pub(super) enum Refused {
    /// One of them may be the cause, and the others may be possible.
    ByOne(Error),
    /// No change is possible now: the cause is the file, or the target.
    All(Error),
}

/// Refuses what a socket that is read-only does not do.
pub(super) fn refuse_read_only(config: &Config) -> Result<(), Error> {
    if !config.control.read_only {
        return Ok(());
    }
    Err(Error::errno(
        Errno::ROFS,
        "the configuration says [control] read_only = true: change the file where it is managed, \
         then reload",
    ))
}

pub(super) fn stopped() -> Error {
    Error::errno(Errno::SHUTDOWN, "the target stops")
}

pub(super) fn all_stopped() -> Refused {
    Refused::All(stopped())
}

/// What a change that cannot be made comes to.
#[expect(clippy::needless_pass_by_value, reason = "map_err passes it")]
pub(super) fn of_edit(error: EditError) -> Error {
    let message = error.to_string();
    match error {
        EditError::Missing(_) => Error::errno(Errno::NOENT, message),
        EditError::Exists(_) => Error::errno(Errno::EXIST, message),
        EditError::Full(_) => Error::errno(Errno::NOSPC, message),
        EditError::Unreadable(_) => Error::invalid(message),
    }
}

/// What a file that cannot be written comes to: no change is possible.
#[expect(clippy::needless_pass_by_value, reason = "map_err passes it")]
pub(super) fn of_write(error: WriteError) -> Refused {
    let errno = match &error {
        WriteError::Changed(_) => Errno::STALE,
        WriteError::System { source, .. } | WriteError::Unsynced { source, .. } => source
            .raw_os_error()
            .map_or(Errno::IO, Errno::from_raw_os_error),
    };
    Refused::All(Error::errno(errno, error.to_string()))
}

/// The error of a change that is in force nevertheless, if it has one.
pub(super) fn of_change(changed: Result<(), ReloadError>) -> Result<Option<Error>, Refused> {
    match changed {
        Ok(()) => Ok(None),
        Err(error) if error.is_in_force() => {
            Ok(Some(Error::errno(Errno::TIMEDOUT, error.to_string())))
        }
        Err(error) => Err(of_reload(error)),
    }
}

/// What a configuration comes to that cannot be changed to.
#[expect(clippy::needless_pass_by_value, reason = "map_err passes it")]
fn of_reload(error: ReloadError) -> Refused {
    let message = error.to_string();
    Refused::ByOne(match error {
        ReloadError::Unavailable(_) => Error::invalid(message),
        ReloadError::ImageChanged { .. } | ReloadError::ListenerChanged { .. } => {
            Error::errno(Errno::BUSY, message)
        }
        ReloadError::Unsettled { .. } => Error::errno(Errno::TIMEDOUT, message),
        ReloadError::Superseded => Error::errno(Errno::AGAIN, message),
        ReloadError::Stopped => return all_stopped(),
    })
}
