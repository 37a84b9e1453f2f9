//! File that keeps a namespace's write protection across restarts: one line with state and disk
//! UUID. An unreadable file counts as protection: a fault must not make a disk writable. A file
//! that no target wrote is never replaced or removed.

#![expect(
    clippy::disallowed_methods,
    reason = "called by threads that open disks and by workers"
)]

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use cairn_config::Uuid;
use nvme_proto::wire::feature::WriteProtectionState as State;

use crate::durable;

const PROTECTED: &str = "protected";
const PERMANENT: &str = "permanent";

/// Maximum bytes read; no valid file is longer.
const READ_MAX: u64 = 64;

const FOREIGN: &str = "the file was not written by a target: name another file, or move this one";

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
        let Some(bytes) = content(&self.path)? else {
            return Ok(State::NONE);
        };
        match parse(&bytes) {
            Some((state, uuid)) if uuid == self.uuid => Ok(state),
            Some((_, uuid)) => Err(io::Error::other(format!(
                "the file belongs to the disk {uuid}"
            ))),
            None if bytes.is_empty() => Err(io::Error::other("the file is empty")),
            None => Err(io::Error::other(FOREIGN)),
        }
    }

    /// Stores the state durably; blocks meanwhile. After a failure, the file has the former or the
    /// new state. Fails if no target wrote the existing file.
    pub fn write(&self, state: State) -> io::Result<()> {
        check_own(&self.path)?;
        let word = match state {
            State::PROTECTED => PROTECTED,
            State::PERMANENT => PERMANENT,
            _ => return durable::remove(&self.path),
        };
        check_beside(&self.path)?;
        let line = format!("{word} {}\n", self.uuid);
        durable::replace(&self.path, line.as_bytes(), 0o600)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Fails if a change of the protection would replace a file that no target wrote. Changes nothing.
/// Blocks on the file system.
pub fn check(path: &Path) -> io::Result<()> {
    check_own(path)?;
    check_beside(path)
}

fn check_own(path: &Path) -> io::Result<()> {
    match content(path)? {
        Some(bytes) if !bytes.is_empty() && parse(&bytes).is_none() => {
            Err(io::Error::other(FOREIGN))
        }
        _ => Ok(()),
    }
}

/// Checks the temporary file of `durable::replace`, which a crash may have truncated at any byte.
fn check_beside(path: &Path) -> io::Result<()> {
    let beside = durable::beside(path);
    // `durable::replace` removes a symbolic link, not the linked file.
    if fs::symlink_metadata(&beside).is_ok_and(|found| found.is_symlink()) {
        return Ok(());
    }
    let shown = beside.display();
    match content(&beside) {
        Ok(Some(bytes)) if !is_start_of_line(&bytes) => Err(io::Error::other(format!(
            "{shown} was not written by a target: move it"
        ))),
        Ok(_) => Ok(()),
        Err(error) => Err(io::Error::new(error.kind(), format!("{shown}: {error}"))),
    }
}

/// Returns the first bytes of a regular file, or `None` if the file is missing.
fn content(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut options = File::options();
    // Without O_NONBLOCK, opening a named pipe would wait for a writer.
    let opened = options.read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = match opened {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file: name another path"));
    }
    let mut bytes = Vec::new();
    file.take(READ_MAX).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

fn parse(bytes: &[u8]) -> Option<(State, Uuid)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (word, uuid) = text.trim_end().split_once(' ')?;
    let state = match word {
        PROTECTED => State::PROTECTED,
        PERMANENT => State::PERMANENT,
        _ => return None,
    };
    Some((state, Uuid::parse_str(uuid).ok()?))
}

fn is_start_of_line(bytes: &[u8]) -> bool {
    [PROTECTED, PERMANENT].iter().any(|word| {
        let word = format!("{word} ");
        let (start, uuid) = bytes.split_at(word.len().min(bytes.len()));
        let mut uuid = uuid.iter();
        word.as_bytes().starts_with(start)
            && uuid.all(|byte| byte.is_ascii_hexdigit() || b"-\n".contains(byte))
    })
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

    #[test]
    fn a_file_of_another_program_is_neither_replaced_nor_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let beside = folder.path().join("disk.new");
        let file = ProtectionFile::new(path.clone(), Uuid::from_u128(1));
        for content in [vec![0; 1 << 20], b"x\n".to_vec(), b"protected\n".to_vec()] {
            fs::write(&path, &content).unwrap();
            for state in [State::NONE, State::PROTECTED, State::PERMANENT] {
                let error = file.write(state).unwrap_err();
                assert!(error.to_string().contains("not written"), "{error}");
            }
            assert!(file.read().is_err());
            assert!(check(&path).is_err());
            assert_eq!(fs::read(&path).unwrap(), content);
        }
        fs::write(&path, "").unwrap();
        check(&path).unwrap();
        fs::write(&beside, "x").unwrap();
        let error = file.write(State::PROTECTED).unwrap_err();
        assert!(error.to_string().contains("disk.new"), "{error}");
        assert_eq!(fs::read(&beside).unwrap(), b"x");
        for cut in ["", "per", "protected 0000"] {
            fs::write(&beside, cut).unwrap();
            file.write(State::PROTECTED).unwrap();
        }
        ProtectionFile::new(path.clone(), Uuid::from_u128(2))
            .write(State::NONE)
            .unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        fs::create_dir(&path).unwrap();
        assert!(file.write(State::NONE).is_err());
    }
}
