//! State of listeners, disks and files, for `status`, metrics and the service manager.

use std::fmt;
use std::net::SocketAddr;
use std::time::Instant;

use cairn_config::{Nqn, Trid};

use crate::nouns::count;

pub(crate) type Place = (Nqn, u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Thing {
    Namespace(Place),
    Directory(Place),
    Listener(Trid),
    Metrics(SocketAddr),
    Keys(Nqn),
    Audit(&'static str),
}

#[derive(Debug, Clone)]
pub(crate) struct Missing {
    pub(crate) thing: Thing,
    pub(crate) reason: String,
    pub(crate) obstacle: Obstacle,
    pub(crate) since: Instant,
}

/// Reason why a listener fails. With `UdpPort` and `DevicePort`, another program uses the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Obstacle {
    NoAddress,
    UdpPort,
    DevicePort,
    Other,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Health {
    pub(crate) subsystems: usize,
    pub(crate) namespaces: usize,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) missing: Vec<Missing>,
    pub(crate) left_out: Vec<(Place, usize)>,
}

impl Thing {
    pub(crate) fn place(&self) -> Option<Place> {
        match self {
            Self::Namespace(place) => Some(*place),
            Self::Directory(_)
            | Self::Listener(_)
            | Self::Metrics(_)
            | Self::Keys(_)
            | Self::Audit(_) => None,
        }
    }

    pub(crate) fn is_address(&self) -> bool {
        matches!(self, Self::Listener(_) | Self::Metrics(_))
    }

    /// Values of [`Self::kind`].
    pub(crate) const KINDS: [&str; 6] = [
        "namespace",
        "directory",
        "listener",
        "metrics",
        "keys",
        "audit",
    ];

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Namespace(_) => "namespace",
            Self::Directory(_) => "directory",
            Self::Listener(_) => "listener",
            Self::Metrics(_) => "metrics",
            Self::Keys(_) => "keys",
            Self::Audit(_) => "audit",
        }
    }
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace((nqn, nsid)) => write!(f, "namespace {nsid} of {nqn}"),
            Self::Directory((nqn, nsid)) => {
                write!(f, "files of the directory at namespace {nsid} of {nqn}")
            }
            Self::Listener(address) => write!(f, "listener {address}"),
            Self::Metrics(address) => write!(f, "metrics at {address}"),
            Self::Keys(nqn) => write!(f, "keys for hosts of {nqn}"),
            Self::Audit(kind) => write!(f, "audit log, {kind}"),
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |number: usize, noun: &str| count(number as u64, noun);
        write!(
            f,
            "serving {} of {} at {}",
            counted(self.namespaces, "namespace"),
            counted(self.subsystems, "subsystem"),
            counted(self.addresses.len(), "address"),
        )?;
        if let Some(first) = self.missing.first() {
            let count = self.missing.len();
            write!(f, "; degraded, {count} missing: {}", first.reason)?;
        }
        Ok(())
    }
}
