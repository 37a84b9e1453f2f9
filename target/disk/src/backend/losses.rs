//! Detection of data loss on an exported disk, and recovery.

use std::io;

use super::{Backend, Kind};

impl Backend {
    /// Checks that a failed disk can flush again, and reopens a failed image. Blocks until the disk
    /// replies.
    pub fn recover(&self) -> io::Result<()> {
        match &self.0 {
            Kind::File(disk) => disk.verify_flush(),
            Kind::Rbd(disk) => disk.recover(),
            // These disks report errors only to the affected commands, so there is nothing to
            // recover.
            Kind::Drive(_) | Kind::Memory(_) | Kind::Null(_) => Ok(()),
        }
    }

    /// True if commands fail until a reload, because data was lost.
    #[inline]
    pub fn is_failed(&self) -> bool {
        match &self.0 {
            Kind::File(disk) => disk.is_failed(),
            Kind::Rbd(disk) => disk.is_failed(),
            Kind::Drive(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    /// Returns true for an unlinked file, whose data is lost when the target ends.
    pub fn is_deleted(&self) -> bool {
        match &self.0 {
            Kind::File(disk) => disk.is_deleted(),
            Kind::Drive(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    /// Returns the device number of the file system if the disk is a file. Only a file can be
    /// truncated or deleted.
    pub fn file_system(&self) -> Option<u64> {
        match &self.0 {
            Kind::File(disk) => disk.file_system(),
            Kind::Drive(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => None,
        }
    }

    /// Checks whether a file was truncated or deleted. Blocks. Returns true for a new
    /// [failure](Self::is_failed).
    pub fn look(&self) -> bool {
        match &self.0 {
            Kind::File(disk) => disk.look(),
            Kind::Drive(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }
}
