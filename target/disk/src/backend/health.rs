//! Permanent failures of a disk, recorded because the system reports each failure to only one
//! caller.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use super::BlockOp;

/// A flush of acknowledged writes failed; the kernel treats the lost pages as written.
const SYNC_FAILED: u8 = 1;

/// The file is shorter than its namespace: writes would extend it, and lost data would read as
/// zeroes.
const CUT_SHORT: u8 = 2;

const CHANGE_UNKNOWN: u8 = 4;

#[derive(Debug, Default)]
pub(super) struct Health {
    losses: AtomicU8,
    /// Whether the file was unlinked. Its data exists until the target ends.
    nameless: AtomicBool,
    /// [`AtPath`] at the last check.
    at_path: AtomicU8,
}

/// Object at the path of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum AtPath {
    Itself,
    Another,
    Nothing,
}

impl Health {
    #[inline(always)]
    pub(super) fn refuses(&self, op: BlockOp) -> bool {
        let losses = self.losses.load(Ordering::Relaxed);
        losses != 0 && refused(losses, op)
    }

    pub(super) fn is_failed(&self) -> bool {
        self.losses.load(Ordering::Relaxed) != 0
    }

    pub(super) fn is_cut(&self) -> bool {
        self.losses.load(Ordering::Relaxed) & CUT_SHORT != 0
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.nameless.load(Ordering::Relaxed)
    }

    pub(super) fn is_moved(&self) -> bool {
        self.at_path.load(Ordering::Relaxed) != AtPath::Itself as u8 && !self.is_deleted()
    }

    pub(super) fn is_displaced(&self) -> bool {
        self.at_path.load(Ordering::Relaxed) == AtPath::Another as u8
    }

    pub(super) fn must_verify(&self) -> bool {
        self.losses.load(Ordering::Relaxed) & (SYNC_FAILED | CHANGE_UNKNOWN) != 0
    }

    pub(super) fn sync_failed(&self, path: &Path, errno: i32) {
        if self.note(SYNC_FAILED) {
            // Logged once for each disk until a reload.
            tracing::error!(
                path = %path.display(), error = %std::io::Error::from_raw_os_error(errno),
                "a flush failed: acknowledged writes may be lost, and every flush and durable \
                 write of this disk fails until a reload finds that it can flush again"
            );
        }
    }

    pub(super) fn change_unknown(&self, path: &Path) {
        if self.note(CHANGE_UNKNOWN) {
            // Logged after a bug, once until a reload.
            tracing::error!(
                path = %path.display(),
                "a thread panicked during a change of this disk, which may be complete, partial \
                 or missing: every flush and durable write of this disk fails until a reload \
                 finds that it can flush again"
            );
        }
    }

    pub(super) fn cut_short(&self, path: &Path, expected: u64) -> bool {
        let is_new = self.note(CUT_SHORT);
        if is_new {
            // Logged once for each disk.
            tracing::error!(
                path = %path.display(), expected_bytes = expected,
                "the disk is smaller than its namespace: every command fails until the namespace \
                 is removed and added again"
            );
        }
        is_new
    }

    pub(super) fn count_names(&self, path: &Path, names: u64) {
        let was_nameless = self.nameless.swap(names == 0, Ordering::Relaxed);
        if names == 0 && !was_nameless {
            // Logged once for each deletion of a disk's file.
            tracing::warn!(
                path = %path.display(),
                "the file was deleted: its data is lost when this target ends; copy it from a \
                 host before"
            );
        }
    }

    pub(super) fn see_path(&self, path: &Path, at_path: AtPath) {
        let before = self.at_path.swap(at_path as u8, Ordering::Relaxed);
        let is_new = before == AtPath::Itself as u8 && at_path != AtPath::Itself;
        if is_new && !self.is_deleted() {
            // Logged once for each move of a file by an administrator.
            tracing::warn!(
                path = %path.display(),
                "the path no longer leads to the exported file: the next start does not find this \
                 data; move the file back, or export it by its new path"
            );
        }
    }

    pub(super) fn flushes_again(&self) {
        let gone = SYNC_FAILED | CHANGE_UNKNOWN;
        self.losses.fetch_and(!gone, Ordering::Relaxed);
    }

    fn note(&self, loss: u8) -> bool {
        self.losses.fetch_or(loss, Ordering::Relaxed) & loss == 0
    }
}

#[cold]
fn refused(losses: u8, op: BlockOp) -> bool {
    let promises_durability = match op {
        BlockOp::Flush => true,
        BlockOp::Write { durable } | BlockOp::WriteZeroes { durable, .. } => durable,
        BlockOp::Read
        | BlockOp::Compare
        | BlockOp::Verify
        | BlockOp::WriteUncorrectable
        | BlockOp::Deallocate
        | BlockOp::Advise => false,
    };
    losses & CUT_SHORT != 0 || promises_durability
}

pub(super) fn warn_of_size(path: &Path, block_bytes: u32, bytes: u64, before: u64) {
    let (blocks, rest) = (
        bytes / u64::from(block_bytes),
        bytes % u64::from(block_bytes),
    );
    if rest != 0 {
        // Logged at the start or after a reload.
        tracing::warn!(
            path = %path.display(), block_bytes, bytes = rest,
            "the size is not a multiple of the block size: the last bytes are not visible to hosts"
        );
    }
    if blocks < before {
        // Logged after a reload.
        tracing::warn!(
            path = %path.display(), blocks, before,
            "the disk has shrunk: data of hosts beyond its new end is lost"
        );
    }
}
