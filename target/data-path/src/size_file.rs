//! File that keeps the size of a namespace's disk across restarts: one line with bytes, disk UUID
//! and a hash of both.

#![expect(
    clippy::disallowed_methods,
    reason = "called by threads that open disks and by workers"
)]

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cairn_config::{Nqn, Uuid};

use crate::durable;

/// Start of the error for a disk that became smaller.
pub const SMALLER: &str = "the disk lost data while it was not served";

/// Start of the error for a size that cannot be read.
pub const UNKNOWN_SIZE: &str = "cannot read the size";

#[derive(Debug)]
pub(crate) struct SizeFile {
    path: PathBuf,
    uuid: Uuid,
    written: Mutex<Option<u64>>,
}

impl SizeFile {
    pub(crate) fn new(folder: &Path, (nqn, nsid): (Nqn, u32), uuid: Uuid) -> Self {
        let place = format!("{nsid} of {}", nqn.raw());
        let name = Uuid::new_v5(&Uuid::NAMESPACE_OID, place.as_bytes());
        Self {
            path: folder.join(format!("{name}.size")),
            uuid,
            written: Mutex::default(),
        }
    }

    pub(crate) fn read(&self) -> io::Result<Option<u64>> {
        let stored = self.load()?;
        *self.written() = stored;
        Ok(stored)
    }

    fn load(&self) -> io::Result<Option<u64>> {
        let text = match fs::read_to_string(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let parsed = text.trim_end().split_once(' ').and_then(|(bytes, rest)| {
            let (bytes, uuid) = (bytes.parse().ok()?, rest.split(' ').next()?.parse().ok()?);
            (line(bytes, uuid) == text).then_some((bytes, uuid))
        });
        let (bytes, uuid) = parsed.ok_or_else(|| io::Error::other("the file is damaged"))?;
        Ok((uuid == self.uuid).then_some(bytes))
    }

    pub(crate) fn write(&self, bytes: u64) -> io::Result<()> {
        let mut written = self.written();
        if written.is_none() {
            *written = self.load().ok().flatten();
        }
        if *written != Some(bytes) {
            durable::replace(&self.path, line(bytes, self.uuid).as_bytes(), 0o600)?;
            *written = Some(bytes);
        }
        Ok(())
    }

    fn written(&self) -> MutexGuard<'_, Option<u64>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn line(bytes: u64, uuid: Uuid) -> String {
    let hash = Uuid::new_v5(&uuid, &bytes.to_le_bytes());
    format!("{bytes} {uuid} {hash}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_belongs_to_one_disk_at_one_nsid() {
        let folder = tempfile::tempdir().unwrap();
        let of = |nsid, uuid| {
            let place = ("nqn.a".parse().unwrap(), nsid);
            SizeFile::new(folder.path(), place, Uuid::from_u128(uuid))
        };
        assert_eq!(of(1, 1).read().unwrap(), None);
        for bytes in [4096, 512, 512] {
            of(1, 1).write(bytes).unwrap();
            assert_eq!(of(1, 1).read().unwrap(), Some(bytes));
        }
        assert_eq!(of(1, 2).read().unwrap(), None);
        assert_eq!(of(2, 1).read().unwrap(), None);
        let intact = fs::read_to_string(of(1, 1).path()).unwrap();
        for at in 0..intact.len() {
            let mut damaged = intact.clone();
            damaged.remove(at);
            fs::write(of(1, 1).path(), damaged).unwrap();
            assert!(of(1, 1).read().is_err(), "without byte {at}");
        }
    }
}
