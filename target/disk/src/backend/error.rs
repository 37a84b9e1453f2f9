use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::remedy;

/// Reason why a backend cannot be opened, with the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct OpenError {
    what: String,
    is_not_admitted: bool,
}

impl OpenError {
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            is_not_admitted: false,
        }
    }

    pub fn lookup(path: &Path, error: &io::Error) -> Self {
        explain_lookup(path, error)
    }

    pub(super) fn not_admitted(path: &Path, location: io::Result<PathBuf>) -> Self {
        let location = match location {
            Ok(location) => location.display().to_string(),
            Err(error) => format!("an object whose path is unknown ({error})"),
        };
        Self {
            what: format!(
                "{} leads to {location}, which [control] exports does not name: add its folder or \
                 device there and restart the target, or remove the link",
                path.display()
            ),
            is_not_admitted: true,
        }
    }

    /// True if the disk exists, but `[control] exports` does not permit it.
    #[must_use]
    pub fn is_not_admitted(&self) -> bool {
        self.is_not_admitted
    }

    pub fn late(path: &Path, waited: Duration) -> Self {
        Self::new(format!(
            "{} has not opened for {} seconds: {}",
            path.display(),
            waited.as_secs(),
            where_to_look(path)
        ))
    }

    pub fn panicked(path: &Path) -> Self {
        Self::new(format!(
            "{}: opening it failed by a bug in Cairn, which is an error in the log: report that \
             line, and reload to try again",
            path.display()
        ))
    }

    pub fn no_thread(error: &io::Error) -> Self {
        Self::new(format!(
            "cannot start a thread that opens the disk: {error}: raise the limit on tasks \
             (TasksMax in the service, `ulimit -u`)"
        ))
    }
}

fn explain_lookup(path: &Path, error: &io::Error) -> OpenError {
    let shown = path.display();
    OpenError::new(match error.kind() {
        io::ErrorKind::NotFound => {
            format!("{shown} does not exist: {}", remedy::for_missing(path))
        }
        io::ErrorKind::PermissionDenied => {
            format!(
                "no permission to reach {shown}: {}",
                remedy::for_denied(path)
            )
        }
        _ => format!("{shown}: {error}"),
    })
}

#[must_use]
pub fn where_to_look(path: &Path) -> &'static str {
    if path.to_string_lossy().starts_with("rbd:") {
        "look at the Ceph cluster by `ceph -s`, and whether this machine reaches all of its OSDs"
    } else {
        "look in the kernel's log for a disk, or a server of a network file system, that does \
         not answer"
    }
}
