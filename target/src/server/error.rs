use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use cairn_base::Trid;
use cairn_base::shell::shell_word;
use cairn_disk::OpenError;
use cairn_rdma::FabricError;
use nvme_auth::SecretError;

use super::state_lock::StateInUse;
use crate::health::{Obstacle, Place};

/// Reason why a target cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A pool directory cannot be exported.
    #[error("{0}")]
    Pool(String),
    /// A listener cannot be opened.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Configured address.
        address: Trid,
        /// Error of the provider.
        source: FabricError,
    },
    /// The configured provider is not part of this program.
    #[error("cannot listen on {address}: {reason}")]
    NoProvider {
        /// Configured address.
        address: Trid,
        /// Text after the address.
        reason: String,
    },
    /// A disk cannot be opened.
    #[error("namespace {nsid} of {nqn}: {source}")]
    Export {
        /// SUBNQN.
        nqn: String,
        /// NSID.
        nsid: u32,
        /// Disk error.
        source: OpenError,
    },
    /// The settings of a namespace change, but its disk lost data, or is another file.
    #[error(
        "namespace {nsid} of {nqn}: {backing} is another file with the same UUID, or lost data \
         ({now} bytes, before {before}), and the old settings stay; to accept that, restore the \
         configuration in force (cairn-target config show --file FILE), then remove the namespace \
         and add it again"
    )]
    Loss {
        /// SUBNQN.
        nqn: String,
        /// NSID.
        nsid: u32,
        /// Export as configured.
        backing: String,
        /// Former size in bytes.
        before: u64,
        /// Present size in bytes.
        now: u64,
    },
    /// A key cannot be used.
    #[error("keys for hosts of {nqn}: {source}")]
    Key {
        /// SUBNQN.
        nqn: String,
        /// Key error.
        source: KeyError,
    },
    /// The authentication thread cannot start.
    #[error("cannot start the thread of authentications: {0}")]
    Authenticator(io::Error),
    /// One disk backs two namespaces that are not both read-only.
    #[error(
        "namespace {nsid} of {nqn} is the same disk as namespace {other_nsid} of {other_nqn}: \
         export it once, or set read_only = true for both"
    )]
    SameDisk {
        /// First SUBNQN.
        nqn: String,
        /// First NSID.
        nsid: u32,
        /// Second SUBNQN.
        other_nqn: String,
        /// Second NSID.
        other_nsid: u32,
    },
    /// Two namespaces show the same UUID.
    #[error(
        "namespace {nsid} of {nqn} shows the UUID {uuid}, which namespace {other_nsid} of \
         {other_nqn} has: it is the same disk, or a snapshot or clone of it; export it once, or \
         set uuid for one of them, as uuidgen prints it"
    )]
    SameIdentity {
        /// First SUBNQN.
        nqn: String,
        /// First NSID.
        nsid: u32,
        /// Second SUBNQN.
        other_nqn: String,
        /// Second NSID.
        other_nsid: u32,
        /// Common UUID.
        uuid: String,
    },
    /// Two namespaces of one subsystem show the same NGUID.
    #[error(
        "namespace {nsid} of {nqn} shows the NGUID {nguid}, which namespace {other_nsid} has: set nguid for one of \
         them to another one, or leave it out"
    )]
    SameNguid {
        /// SUBNQN.
        nqn: String,
        /// First NSID.
        nsid: u32,
        /// NSID that already has the NGUID.
        other_nsid: u32,
        /// Common NGUID.
        nguid: String,
    },
    /// The disks exceed the capacity of the rings, or the limit on open files.
    #[error(
        "{disks} files and block devices are to be exported, and at most {most} can be: export \
         fewer, or raise the limit on open files (LimitNOFILE in the service, `ulimit -n`) to \
         two for each disk and 256 for all else; 16384 is the most in any case"
    )]
    TooManyDisks {
        /// Configured disks.
        disks: usize,
        /// Maximum disks.
        most: usize,
    },
    /// The metrics port cannot be opened.
    #[error("cannot listen on {address} for metrics: {source}")]
    Metrics {
        /// Configured address.
        address: SocketAddr,
        /// System error.
        source: io::Error,
    },
    /// The thread of the audit log cannot start.
    #[error("cannot start a thread of the audit log: {0}")]
    Audit(io::Error),
    /// Another target uses the state directory.
    #[error("{0}")]
    State(#[from] StateInUse),
    /// A reactor cannot start.
    #[error("cannot start a reactor: {0}")]
    Reactor(io::Error),
    /// The target was stopped while it started.
    #[error("stopped during the start")]
    Stopped,
    /// The thread of the control plane cannot start.
    #[error("cannot start the control plane: {0}")]
    Control(io::Error),
}

impl StartError {
    pub(crate) fn obstacle(&self) -> Obstacle {
        let Self::Listen { address, source } = self else {
            return Obstacle::Other;
        };
        match source {
            FabricError::PortTaken { .. } => Obstacle::UdpPort,
            FabricError::AddressInUse { .. } => Obstacle::DevicePort,
            // The machine may have the address at an interface without an RDMA device.
            FabricError::NoDevice { .. } if !is_own(*address) => Obstacle::NoAddress,
            _ => Obstacle::Other,
        }
    }

    /// True if `[control] exports` does not permit a disk.
    pub(crate) fn is_not_admitted(&self) -> bool {
        matches!(self, Self::Export { source, .. } if source.is_not_admitted())
    }

    /// True if every start fails until an administrator acts. Unreadable files do
    /// not count, because a later start may read them.
    pub(crate) fn is_of_the_configuration(&self) -> bool {
        match self {
            Self::NoProvider { .. }
            | Self::SameDisk { .. }
            | Self::SameIdentity { .. }
            | Self::SameNguid { .. }
            | Self::State(_)
            | Self::TooManyDisks { .. } => true,
            Self::Key { source, .. } => !matches!(
                source,
                KeyError::Read { .. } | KeyError::Runtime(_) | KeyError::NoRandom(_)
            ),
            _ => false,
        }
    }

    pub(super) fn twins(&self) -> Vec<Place> {
        let (nqn, nsid, other_nqn, other_nsid) = match self {
            Self::SameIdentity {
                nqn,
                nsid,
                other_nqn,
                other_nsid,
                ..
            }
            | Self::SameDisk {
                nqn,
                nsid,
                other_nqn,
                other_nsid,
            } => (nqn, nsid, other_nqn, other_nsid),
            Self::SameNguid {
                nqn,
                nsid,
                other_nsid,
                ..
            } => (nqn, nsid, nqn, other_nsid),
            _ => return Vec::new(),
        };
        let places = [(nqn, nsid), (other_nqn, other_nsid)];
        let parsed = places.into_iter();
        parsed
            .filter_map(|(nqn, nsid)| Some((nqn.parse().ok()?, *nsid)))
            .collect()
    }
}

/// Reason why a reload failed. [`Self::is_in_force`] returns whether the reload took effect.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// A configured part is unavailable.
    #[error("{0}")]
    Unavailable(#[from] StartError),
    /// The settings of a Ceph image cannot change while it is open.
    #[error(
        "the image {image} is open as namespace {nsid} of {nqn}, and its cluster gives the lock \
         to one client only: to change these settings remove the namespace, reload, add it again, \
         and reload"
    )]
    ImageChanged {
        /// Image as configured.
        image: String,
        /// SUBNQN.
        nqn: String,
        /// NSID of the image.
        nsid: u32,
    },
    /// The settings of an open listener cannot change.
    #[error(
        "provider, roce, vlan, pkey and backlog of the open listener {address} cannot change: \
         remove the listener, reload, then add it again"
    )]
    ListenerChanged {
        /// Address and port.
        address: Trid,
    },
    /// The configuration is in force, but disks still execute commands that began before it.
    #[error(
        "the configuration is in force, but these disks still have earlier commands, which may \
         change data until they complete: {disks}; look for a disk that hangs"
    )]
    Unsettled {
        /// Affected namespaces.
        disks: String,
    },
    /// A later reload replaced this one.
    #[error("a later reload replaced this one")]
    Superseded,
    /// The target has stopped.
    #[error("the target has stopped")]
    Stopped,
}

impl KeyError {
    /// True if a file cannot be read, has no secret, or is open to other users.
    pub(crate) fn is_of_a_file(&self) -> bool {
        matches!(
            self,
            Self::Read { .. } | Self::Open { .. } | Self::Secret { .. }
        )
    }
}

impl ReloadError {
    /// Returns true if the new configuration is in force despite the error.
    #[must_use]
    pub fn is_in_force(&self) -> bool {
        matches!(self, Self::Unsettled { .. })
    }
}

fn is_own(at: Trid) -> bool {
    let resolved = at.address.resolve();
    resolved.is_ok_and(|address| UdpSocket::bind(address.at(0)).is_ok())
}

fn word(path: &Path) -> String {
    shell_word(&path.to_string_lossy(), "FILE")
}

fn of_another_user(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ": the target's user has to own its key files",
        _ => "",
    }
}

/// Reason why a key cannot be used; contains no part of the key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("cannot read the key {path}: {source}{}", of_another_user(.source))]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// System error.
        source: io::Error,
    },
    /// Other users can access the file.
    #[error(
        "users other than its owner can read or write the key {path} (mode {mode:04o}): \
         `chmod 600 {}`, and make another key if one of them may have read it",
        word(.path)
    )]
    Open {
        /// Path of the file.
        path: PathBuf,
        /// Permission bits.
        mode: u32,
    },
    /// The file has no valid secret.
    #[error("the key {path}: {source}")]
    Secret {
        /// Path of the key file.
        path: PathBuf,
        /// Reason why the text is invalid.
        source: SecretError,
    },
    /// The key in the configuration file is not a valid secret.
    #[error("a key in the configuration file: {0}")]
    Inline(SecretError),
    /// No runtime is available to wait for the file.
    #[error("cannot wait for a key: {0}")]
    Runtime(io::Error),
    /// The process has no credentials directory.
    #[error(
        "the key credential:{0} cannot be used: $CREDENTIALS_DIRECTORY is not set; run the target \
         by systemd with LoadCredential={0}:FILE in its unit, or name the file itself"
    )]
    NoCredentials(String),
    /// The operating system has no random numbers to replace a removed secret.
    #[error("the operating system has no random numbers: {0}")]
    NoRandom(getrandom::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_the_obstacle_only_if_this_machine_lacks_it() {
        let of = |address: &str, source| {
            let address = format!("{address}:4420").parse().unwrap();
            StartError::Listen { address, source }.obstacle()
        };
        let no_device = || FabricError::NoDevice {
            address: "127.0.0.1".parse().unwrap(),
            remedy: String::new(),
        };
        assert_eq!(of("192.0.2.77", no_device()), Obstacle::NoAddress);
        assert_eq!(of("127.0.0.1", no_device()), Obstacle::Other);
        let reason = String::new();
        let taken = FabricError::PortTaken { reason };
        assert_eq!(of("127.0.0.1", taken), Obstacle::UdpPort);
        let address = "127.0.0.1:4420".parse().unwrap();
        let in_use = FabricError::AddressInUse { address };
        assert_eq!(of("127.0.0.1", in_use), Obstacle::DevicePort);
    }
}
