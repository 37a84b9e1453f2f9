use std::fmt;
use std::io;

use serde::{Serialize, Serializer};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The file, device or feature does not exist.
    Absent,
    /// Permission denied (EACCES, EPERM).
    Denied,
    /// Another reason, in words.
    Other(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// File, or question to the kernel.
    pub path: String,
    pub reason: Reason,
}

impl Unknown {
    #[must_use]
    pub fn absent(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            reason: Reason::Absent,
        }
    }

    #[must_use]
    pub fn other(path: &str, reason: String) -> Self {
        Self {
            path: path.to_owned(),
            reason: Reason::Other(reason),
        }
    }

    pub(crate) fn io(path: &str, error: &io::Error) -> Self {
        let reason = match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => Reason::Denied,
            Some(libc::ENOENT | libc::ENOTDIR | libc::ENODEV | libc::ENXIO) => Reason::Absent,
            Some(libc::EOPNOTSUPP) => Reason::Other("not supported by the driver".to_owned()),
            _ => Reason::Other(error.to_string()),
        };
        Self {
            path: path.to_owned(),
            reason,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("not there"),
            Self::Denied => f.write_str("permission denied (root may look)"),
            Self::Other(reason) => f.write_str(reason),
        }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.reason)
    }
}

/// Fact, or the reason why it is unavailable: in JSON, `{"unknown": "because ..."}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known<T> {
    Is(T),
    Unknown(Unknown),
}

impl<T> Known<T> {
    pub fn get(&self) -> Option<&T> {
        match self {
            Self::Is(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }
}

impl<T: IntoIterator> Known<T>
where
    for<'a> &'a T: IntoIterator,
{
    pub fn each(&self) -> impl Iterator<Item = <&T as IntoIterator>::Item> {
        self.get().into_iter().flatten()
    }
}

impl<T> From<Result<T, Unknown>> for Known<T> {
    fn from(result: Result<T, Unknown>) -> Self {
        match result {
            Ok(value) => Self::Is(value),
            Err(unknown) => Self::Unknown(unknown),
        }
    }
}

impl<T: fmt::Display> fmt::Display for Known<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(value) => value.fmt(f),
            Self::Unknown(unknown) => write!(f, "unknown, because {unknown}"),
        }
    }
}

impl<T: Serialize> Serialize for Known<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Because {
            unknown: String,
        }
        match self {
            Self::Is(value) => value.serialize(serializer),
            Self::Unknown(unknown) => Because {
                unknown: format!("because {unknown}"),
            }
            .serialize(serializer),
        }
    }
}
