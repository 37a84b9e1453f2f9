//! Size of a disk, and detection of truncated, moved and deleted files.

use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;

use super::BlockFile;
use crate::backend::health::{self, AtPath};

impl BlockFile {
    pub(in crate::backend) fn measure(&self) -> io::Result<u64> {
        let bytes = (&*self.file).seek(SeekFrom::End(0))?;
        if self.can_grow {
            let names = self.file.metadata()?.nlink();
            self.health.count_names(&self.path, names);
            self.look_at_path();
        }
        Ok(bytes)
    }

    /// Returns the size in bytes of a block device that has grown; does not block.
    pub(in crate::backend) fn grown_bytes(&self) -> Option<u64> {
        if self.can_grow {
            return None;
        }
        let bytes = (&*self.file).seek(SeekFrom::End(0)).ok()?;
        let blocks = bytes / u64::from(self.block_bytes);
        (blocks > self.blocks.load(Ordering::Relaxed)).then_some(bytes)
    }

    pub(in crate::backend) fn is_device(&self) -> bool {
        !self.can_grow
    }

    pub(in crate::backend) fn file_system(&self) -> Option<u64> {
        let (device, _) = self.place();
        self.can_grow.then_some(device)
    }

    /// Checks whether the file was truncated; may block. Returns true for a new truncation.
    pub(in crate::backend) fn look(&self) -> bool {
        if !self.can_grow {
            return false;
        }
        let wanted = StatxFlags::SIZE | StatxFlags::NLINK;
        match rustix::fs::statx(&*self.file, c"", AtFlags::EMPTY_PATH, wanted) {
            Ok(found) => {
                self.health.count_names(&self.path, found.stx_nlink.into());
                self.look_at_path();
                self.compare_size(found.stx_size)
            }
            // A file server returns this error for a deleted file.
            Err(Errno::STALE) => {
                self.health.count_names(&self.path, 0);
                false
            }
            Err(_) => false,
        }
    }

    fn look_at_path(&self) {
        let at_path = match std::fs::metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == self.place() => AtPath::Itself,
            Ok(_) => AtPath::Another,
            Err(error) if error.kind() == io::ErrorKind::NotFound => AtPath::Nothing,
            Err(_) => return,
        };
        self.health.see_path(&self.path, at_path);
    }

    pub(in crate::backend) fn accept_size(&self, bytes: u64) -> bool {
        let blocks = bytes / u64::from(self.block_bytes);
        let before = self.blocks.swap(blocks, Ordering::Relaxed);
        let changed = before != blocks;
        if changed {
            health::warn_of_size(&self.path, self.block_bytes, bytes, before);
        }
        changed
    }

    pub(super) fn check_size(&self) {
        if !self.can_grow {
            return;
        }
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        if let Ok(found) = rustix::fs::statx(&*self.file, c"", flags, StatxFlags::SIZE) {
            self.compare_size(found.stx_size);
        }
    }

    fn compare_size(&self, bytes: u64) -> bool {
        let expected = self.blocks.load(Ordering::Relaxed) * u64::from(self.block_bytes);
        bytes < expected && self.health.cut_short(&self.path, expected)
    }
}
