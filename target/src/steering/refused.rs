use cairn_config::Config;
use cairn_control::Error;
use rustix::io::Errno;

use super::file::WriteError;
use crate::server::ReloadError;

pub(super) enum Refused {
    /// One change of the batch may be the cause; the other changes may succeed separately.
    ByOne(Error),
    /// The file or the target prevents every change.
    All(Error),
}

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

#[expect(clippy::needless_pass_by_value, reason = "map_err passes it")]
pub(super) fn of_write(error: WriteError) -> Refused {
    let message = error.to_string();
    Refused::All(match &error {
        WriteError::Changed(_) => Error::errno(Errno::STALE, message),
        WriteError::System { source, .. } | WriteError::Unsynced { source, .. } => {
            Error::io(source, message)
        }
    })
}

pub(super) fn of_change(changed: Result<(), ReloadError>) -> Result<Option<Error>, Refused> {
    match changed {
        Ok(()) => Ok(None),
        Err(error) if error.is_in_force() => {
            Ok(Some(Error::errno(Errno::TIMEDOUT, error.to_string())))
        }
        Err(error) => Err(of_reload(error)),
    }
}

fn of_reload(error: ReloadError) -> Refused {
    let message = error.to_string();
    Refused::ByOne(match error {
        ReloadError::Unavailable(error) if error.is_not_admitted() => {
            Error::errno(Errno::ACCESS, message)
        }
        ReloadError::Unavailable(_) => Error::invalid(message),
        ReloadError::ImageChanged { .. } | ReloadError::ListenerChanged { .. } => {
            Error::errno(Errno::BUSY, message)
        }
        ReloadError::Unsettled { .. } => Error::errno(Errno::TIMEDOUT, message),
        ReloadError::Superseded => Error::errno(Errno::AGAIN, message),
        ReloadError::Stopped => return all_stopped(),
    })
}
