//! File that keeps a namespace's write protection across restarts: one line with state and disk
//! UUID. An unreadable file counts as protection: a fault must not make a disk writable.

#![expect(
    clippy::disallowed_methods,
    reason = "called by threads that open disks and by workers"
)]

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use cairn_config::Uuid;
use nvme_proto::wire::feature::WriteProtectionState as State;

use crate::durable;

const PROTECTED: &str = "protected";
const PERMANENT: &str = "permanent";

#[derive(Debug)]
pub struct ProtectionFile {
    path: PathBuf,
    uuid: Uuid,
}

impl ProtectionFile {
    pub(crate) fn new(path: PathBuf, uuid: Uuid) -> Self {
        Self { path, uuid }
    }

    pub(crate) fn read(&self) -> io::Result<State> {
        let text = match fs::read_to_string(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(State::NONE),
            text => text?,
        };
        match text.trim_end().split_once(' ') {
            Some((_, uuid)) if Uuid::parse_str(uuid).is_ok_and(|uuid| uuid != self.uuid) => Err(
                io::Error::other(format!("the file belongs to the disk {uuid}")),
            ),
            Some((PROTECTED, _)) => Ok(State::PROTECTED),
            Some((PERMANENT, _)) => Ok(State::PERMANENT),
            _ => Err(io::Error::other("a line was not written by a target")),
        }
    }

    /// Stores the state durably, and blocks meanwhile. After a failure, the file keeps the former
    /// state.
    pub fn write(&self, state: State) -> io::Result<()> {
        let word = match state {
            State::PROTECTED => PROTECTED,
            State::PERMANENT => PERMANENT,
            _ => return durable::remove(&self.path),
        };
        let line = format!("{word} {}\n", self.uuid);
        durable::replace(&self.path, line.as_bytes(), 0o600)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_again_and_of_one_disk() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.protected");
        let file = ProtectionFile::new(path.clone(), Uuid::from_u128(1));
        assert_eq!(file.read().unwrap(), State::NONE);
        file.write(State::NONE).unwrap();
        for (state, then) in [
            (State::PROTECTED, State::PROTECTED),
            (State::PERMANENT, State::PERMANENT),
            (State::UNTIL_POWER_CYCLE, State::NONE),
            (State::PROTECTED, State::PROTECTED),
            (State::NONE, State::NONE),
        ] {
            file.write(state).unwrap();
            let again = ProtectionFile::new(path.clone(), Uuid::from_u128(1));
            assert_eq!(again.read().unwrap(), then);
        }
        file.write(State::PROTECTED).unwrap();
        let other = ProtectionFile::new(path.clone(), Uuid::from_u128(2));
        assert!(other.read().unwrap_err().to_string().contains("the disk"));
        for text in ["", "protected", "open 00000000-0000-0000-0000-000000000001"] {
            fs::write(&path, text).unwrap();
            assert!(file.read().is_err(), "{text}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        drop(folder);
        assert!(file.write(State::PROTECTED).is_err(), "its folder is gone");
    }
}
