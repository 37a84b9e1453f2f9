//! File that keeps a namespace's reservations through power loss.

#![expect(
    clippy::disallowed_methods,
    reason = "called by threads that open disks and by workers"
)]

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use cairn_config::{Nqn, Uuid};
use nvme_proto::reservation::Reservations;

use crate::durable;

/// Start of the error for reservations that cannot be read.
pub const UNREADABLE: &str = "cannot read its reservations";

pub const RESERVATIONS_END: &str = "an empty directory drops all reservations";

#[derive(Debug)]
pub struct ReservationFile {
    path: PathBuf,
    uuid: Uuid,
    subnqn: Nqn,
}

impl ReservationFile {
    pub fn new(folder: &Path, uuid: Uuid, subnqn: Nqn) -> Self {
        // The name depends on the subsystem, because several subsystems may export the disk.
        let name = Uuid::new_v5(&uuid, subnqn.raw().as_bytes());
        Self {
            path: folder.join(format!("{name}.reservations")),
            uuid,
            subnqn,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn read(&self) -> io::Result<Reservations> {
        let bytes = match fs::read(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // A missing directory may be on an unmounted disk, so the state is unknown.
                let folder = self.path.parent().unwrap_or(&self.path);
                if !folder.is_dir() {
                    let text = "its directory does not exist, or its disk is not mounted";
                    return Err(io::Error::new(ErrorKind::NotFound, text));
                }
                return Ok(Reservations::default());
            }
            bytes => bytes?,
        };
        let uuid = self.uuid.as_bytes();
        Reservations::decode(&bytes, uuid, self.subnqn.raw()).map_err(io::Error::other)
    }

    /// Stores a persistent state durably; for any other state, removes the file. Blocks meanwhile.
    pub fn write(&self, state: &Reservations) -> io::Result<()> {
        if !state.is_persistent() {
            return durable::remove(&self.path);
        }
        let bytes = state.encode(self.uuid.as_bytes(), self.subnqn.raw());
        durable::replace(&self.path, &bytes, 0o600)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme_proto::reservation::Change;

    #[test]
    fn a_stored_state_belongs_to_one_disk_of_one_subsystem() {
        let folder = tempfile::tempdir().unwrap();
        let of = |uuid, nqn: &str| {
            ReservationFile::new(folder.path(), Uuid::from_u128(uuid), nqn.parse().unwrap())
        };
        let file = of(1, "nqn.a");
        assert_eq!(file.read().unwrap(), Reservations::default());
        let persist = |persistent| {
            let change = Change::Persist(persistent);
            let outcome = Reservations::default().execute(&[1; 16], &change, true);
            outcome.unwrap().next
        };
        file.write(&persist(true)).unwrap();
        assert!(of(1, "nqn.a").read().unwrap().is_persistent());
        for other in [of(2, "nqn.a"), of(1, "nqn.b")] {
            assert!(!other.read().unwrap().is_persistent());
            fs::copy(file.path(), other.path()).unwrap();
            let error = other.read().unwrap_err().to_string();
            assert!(error.contains("another disk or subsystem"), "{error}");
        }
        fs::write(file.path(), "damaged").unwrap();
        assert!(file.read().is_err());
        file.write(&persist(false)).unwrap();
        file.write(&persist(false)).unwrap();
        assert!(!file.path().exists());
        drop(folder);
        assert!(file.write(&persist(true)).is_err(), "its folder is gone");
        assert!(file.read().is_err(), "its folder is gone");
    }
}
