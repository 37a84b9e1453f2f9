//! File that keeps a namespace's reservations through power loss.
//!
//! A namesake in the folder `index` reveals a lost file. It is created after the file and removed
//! before it, so that a crash leaves a file without entry, which is valid.

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

/// Maximum reads of a file that another thread may create or remove.
const READS: usize = 3;

#[derive(Debug)]
pub struct ReservationFile {
    path: PathBuf,
    entry: PathBuf,
    uuid: Uuid,
    subnqn: Nqn,
}

impl ReservationFile {
    pub fn new(folder: &Path, uuid: Uuid, subnqn: Nqn) -> Self {
        // The name depends on the subsystem, because several subsystems may export the disk.
        let name = Uuid::new_v5(&uuid, subnqn.raw().as_bytes());
        Self {
            path: folder.join(format!("{name}.reservations")),
            entry: folder.join("index").join(name.to_string()),
            uuid,
            subnqn,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn read(&self) -> io::Result<Reservations> {
        for _ in 0..READS {
            match fs::read(&self.path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                bytes => return self.decode(&bytes?),
            }
            // A missing directory may be on an unmounted disk, so the state is unknown.
            let folder = self.path.parent().unwrap_or(&self.path);
            if !folder.is_dir() {
                let text = "its directory does not exist, or its disk is not mounted";
                return Err(io::Error::new(ErrorKind::NotFound, text));
            }
            if !self.entry.try_exists()? {
                return Ok(Reservations::default());
            }
        }
        let text = format!(
            "the file is missing, and {} shows that it existed",
            self.entry.display()
        );
        Err(io::Error::new(ErrorKind::NotFound, text))
    }

    fn decode(&self, bytes: &[u8]) -> io::Result<Reservations> {
        let uuid = self.uuid.as_bytes();
        Reservations::decode(bytes, uuid, self.subnqn.raw()).map_err(io::Error::other)
    }

    /// Lists the file in the index. Blocks on the file system.
    pub(crate) fn list(&self) -> io::Result<()> {
        if self.entry.try_exists()? {
            return Ok(());
        }
        if let Some(index) = self.entry.parent() {
            durable::make_folder(index)?;
        }
        durable::replace(&self.entry, &[], 0o600)?;
        // Another thread may have removed the file meanwhile.
        match self.path.try_exists()? {
            true => Ok(()),
            false => durable::remove(&self.entry),
        }
    }

    /// True if the file has this persistent state and is listed. Blocks on the file system.
    pub fn holds(&self, state: &Reservations) -> bool {
        let bytes = state.encode(self.uuid.as_bytes(), self.subnqn.raw());
        fs::read(&self.path).is_ok_and(|stored| stored == bytes)
            && self.entry.try_exists().is_ok_and(|exists| exists)
    }

    /// Stores a persistent state durably; for any other state, removes the file. Blocks meanwhile.
    pub fn write(&self, state: &Reservations) -> io::Result<()> {
        if !state.is_persistent() {
            durable::remove(&self.entry)?;
            return durable::remove(&self.path);
        }
        let bytes = state.encode(self.uuid.as_bytes(), self.subnqn.raw());
        durable::replace(&self.path, &bytes, 0o600)?;
        self.list()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme_proto::reservation::Change;

    fn persist(persistent: bool) -> Reservations {
        let change = Change::Persist(persistent);
        let outcome = Reservations::default().execute(&[1; 16], &change, true);
        outcome.unwrap().next
    }

    fn file_in(folder: &Path) -> ReservationFile {
        ReservationFile::new(folder, Uuid::from_u128(1), "nqn.a".parse().unwrap())
    }

    #[test]
    fn a_lost_file_is_an_error_until_its_entry_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let file = file_in(folder.path());
        file.write(&persist(true)).unwrap();
        let bytes = fs::read(file.path()).unwrap();
        fs::remove_file(file.path()).unwrap();
        let error = file.read().unwrap_err().to_string();
        assert!(
            error.contains("is missing") && error.contains("/index/"),
            "{error}"
        );
        fs::write(file.path(), bytes).unwrap();
        assert!(file.read().unwrap().is_persistent());
        fs::remove_file(file.path()).unwrap();
        fs::remove_file(&file.entry).unwrap();
        assert!(!file.read().unwrap().is_persistent());
    }

    #[test]
    fn a_file_without_entry_is_valid_and_is_listed() {
        let folder = tempfile::tempdir().unwrap();
        let file = file_in(folder.path());
        file.write(&persist(true)).unwrap();
        fs::remove_dir_all(folder.path().join("index")).unwrap();
        assert!(file.read().unwrap().is_persistent());
        file.list().unwrap();
        fs::remove_file(file.path()).unwrap();
        assert!(file.read().is_err());
        file.write(&persist(false)).unwrap();
        file.list().unwrap();
        assert!(!file.read().unwrap().is_persistent());
    }

    #[test]
    fn a_kill_at_any_step_leaves_the_former_or_the_new_state() {
        for (before, after) in [(false, true), (true, false), (true, true)] {
            let mut was_complete = false;
            for steps in 0.. {
                let folder = tempfile::tempdir().unwrap();
                let file = file_in(folder.path());
                file.write(&persist(before)).unwrap();
                durable::interrupt_after(Some(steps));
                let write = std::panic::AssertUnwindSafe(|| file.write(&persist(after)));
                let written = std::panic::catch_unwind(write);
                durable::interrupt_after(None);
                let read = file.read().unwrap().is_persistent();
                assert!(read == before || read == after);
                file.write(&persist(after)).unwrap();
                assert_eq!(file.read().unwrap().is_persistent(), after);
                if written.is_ok() {
                    assert!(steps > 3, "a change takes more than one step");
                    was_complete = true;
                    break;
                }
            }
            assert!(was_complete);
        }
    }

    #[test]
    fn a_stored_state_belongs_to_one_disk_of_one_subsystem() {
        let folder = tempfile::tempdir().unwrap();
        let of = |uuid, nqn: &str| {
            ReservationFile::new(folder.path(), Uuid::from_u128(uuid), nqn.parse().unwrap())
        };
        let file = of(1, "nqn.a");
        assert_eq!(file.read().unwrap(), Reservations::default());
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
