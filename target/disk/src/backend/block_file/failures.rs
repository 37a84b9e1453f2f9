//! Transient errors, and errors that may have lost acknowledged writes.

use super::{BlockFile, BlockIo, BlockOp, Zeroing};

impl BlockFile {
    pub(super) fn may_try_again(&self, io: &BlockIo, errno: i32) -> bool {
        match errno {
            libc::EINTR | libc::EAGAIN => true,
            // An operation that lacked memory had no effect and may be repeated. An exception is
            // the sync of a regular file: it may have dropped pages, and the kernel reports the
            // loss only once. Block devices keep such pages.
            libc::ENOMEM | libc::ENOBUFS => !self.can_grow || !is_sync(io),
            _ => false,
        }
    }

    /// Returns whether acknowledged writes may be lost. The error of a durable `O_DIRECT` write
    /// does not show whether the write or its sync failed, so it counts as a failed sync.
    pub(super) fn loses_writes(&self, io: &BlockIo, errno: i32) -> bool {
        if self.may_try_again(io, errno) {
            return false;
        }
        match errno {
            libc::ECANCELED | libc::EBADF | libc::EINVAL => return false,
            // With `O_DIRECT`, a lack of space loses nothing: space is allocated before data is
            // written.
            libc::ENOSPC | libc::EDQUOT | libc::EFBIG if self.direct && !is_sync(io) => {
                return false;
            }
            libc::EROFS | libc::EPERM | libc::EACCES | libc::EOPNOTSUPP if !is_sync(io) => {
                return false;
            }
            _ => {}
        }
        match io.op {
            BlockOp::Flush => true,
            BlockOp::Write { durable } => durable && (self.direct || io.syncing),
            BlockOp::WriteZeroes {
                durable,
                deallocate,
            } => io.syncing || self.direct && durable && self.zeroing(deallocate) == Zeroing::Write,
            BlockOp::Read
            | BlockOp::Compare
            | BlockOp::Verify
            | BlockOp::WriteUncorrectable
            | BlockOp::Deallocate
            | BlockOp::Advise => false,
        }
    }
}

fn is_sync(io: &BlockIo) -> bool {
    io.syncing || io.op == BlockOp::Flush
}

#[cfg(test)]
#[derive(Debug, Default)]
pub(super) struct FailingSyncs {
    left: std::sync::atomic::AtomicU32,
    errno: std::sync::atomic::AtomicI32,
}

#[cfg(test)]
impl BlockFile {
    pub(crate) fn fail_syncs(&self, count: u32) {
        self.fail_syncs_with(count, libc::EIO);
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.direct
    }

    pub(crate) fn fail_syncs_with(&self, count: u32, errno: i32) {
        use std::sync::atomic::Ordering::Relaxed;
        self.failing_syncs.errno.store(errno, Relaxed);
        self.failing_syncs.left.store(count, Relaxed);
    }

    pub(super) fn fail_sync(&self) -> Result<(), i32> {
        use std::sync::atomic::Ordering::Relaxed;
        let take = |left: u32| left.checked_sub(1);
        let FailingSyncs { left, errno } = &self.failing_syncs;
        match left.fetch_update(Relaxed, Relaxed, take) {
            Ok(_) => Err(errno.load(Relaxed)),
            Err(_) => Ok(()),
        }
    }

    pub(super) fn distort(&self, io: &BlockIo, result: Result<u32, i32>) -> Result<u32, i32> {
        let durable = self.direct && matches!(io.op, BlockOp::Write { durable: true });
        if result.is_ok() && (is_sync(io) || durable) {
            self.fail_sync()?;
        }
        result
    }
}
