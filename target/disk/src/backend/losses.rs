use std::io;

use super::{Backend, Kind};

impl Backend {
    /// Checks that a failed disk can flush again, and reopens a failed image. Blocks until the disk
    /// replies.
    pub fn recover(&self) -> io::Result<()> {
        match &self.0 {
            Kind::File(disk) => disk.verify_flush(),
            Kind::Rbd(disk) => disk.recover(),
            Kind::Drive(_) | Kind::Memory(_) | Kind::Null(_) => Ok(()),
        }
    }

    /// True after a permanent failure: all commands fail, or only flushes and durable writes.
    #[inline]
    pub fn is_failed(&self) -> bool {
        match &self.0 {
            Kind::File(disk) => disk.is_failed(),
            Kind::Rbd(disk) => disk.is_failed(),
            Kind::Drive(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    /// True if the disk was found smaller than its namespace.
    pub fn is_cut(&self) -> bool {
        match &self.0 {
            Kind::File(disk) => disk.is_cut(),
            Kind::Drive(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    /// The data is lost when the target closes the file.
    pub fn is_deleted(&self) -> bool {
        match &self.0 {
            Kind::File(disk) => disk.is_deleted(),
            Kind::Drive(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    pub fn is_moved(&self) -> bool {
        match &self.0 {
            Kind::File(disk) => disk.is_moved(),
            Kind::Drive(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    /// True if another file is at the path of the open file.
    pub fn is_displaced(&self) -> bool {
        match &self.0 {
            Kind::File(disk) => disk.is_displaced(),
            Kind::Drive(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    /// Returns the device number of the file system if the disk is a file.
    pub fn file_system(&self) -> Option<u64> {
        match &self.0 {
            Kind::File(disk) => disk.file_system(),
            Kind::Drive(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => None,
        }
    }

    /// True for a block device whose commands pass the block layer.
    pub fn is_device(&self) -> bool {
        match &self.0 {
            Kind::File(disk) => disk.is_device(),
            Kind::Drive(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    pub fn grown_bytes(&self) -> Option<u64> {
        match &self.0 {
            Kind::File(disk) => disk.grown_bytes(),
            Kind::Drive(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => None,
        }
    }

    /// Checks whether the disk's file was truncated or deleted. Blocks until the file system
    /// replies. Returns true for a new [failure](Self::is_failed).
    pub fn look(&self) -> bool {
        match &self.0 {
            Kind::File(disk) => disk.look(),
            Kind::Drive(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }
}
