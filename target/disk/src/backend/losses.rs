//! What a disk may lose while it is exported, and how that is noticed.

use std::io;

use super::{Backend, Kind};

impl Backend {
    /// Looks, after a failed flush, whether it can flush again. Blocks as long as that takes.
    pub fn recover(&self) -> io::Result<()> {
        match &self.0 {
            Kind::File(disk) => disk.verify_flush(),
            Kind::Rbd(disk) => disk.recover(),
            // Each failure was reported to whom it concerned.
            Kind::Drive(_) | Kind::Memory(_) | Kind::Null(_) => Ok(()),
        }
    }

    /// Whether it lost data, so that commands fail until a reload.
    #[inline]
    pub fn is_failed(&self) -> bool {
        match &self.0 {
            Kind::File(disk) => disk.is_failed(),
            Kind::Rbd(disk) => disk.is_failed(),
            Kind::Drive(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    /// Whether it is a file that was found without a name: it ends with the target.
    pub fn is_deleted(&self) -> bool {
        match &self.0 {
            Kind::File(disk) => disk.is_deleted(),
            Kind::Drive(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    /// The number of the file system that it is a file of: one that can be cut short or deleted.
    pub fn file_system(&self) -> Option<u64> {
        match &self.0 {
            Kind::File(disk) => disk.file_system(),
            Kind::Drive(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => None,
        }
    }

    /// Looks whether a file was cut short or deleted. Blocks as long as its file system takes.
    /// Returns whether it has [failed](Self::is_failed) for that now, and had not before.
    pub fn look(&self) -> bool {
        match &self.0 {
            Kind::File(disk) => disk.look(),
            Kind::Drive(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }
}
