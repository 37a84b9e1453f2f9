//! Methods to give blocks back and to zero them. Discard by ioctl(2) blocks until it is done: for
//! kernels that cannot do it by io_uring.
//!
//! Why `unsafe` here: the ioctl has no safe wrapper in the crates we use.

use std::fmt;
use std::os::fd::AsRawFd as _;

use super::closing::OpenFile;

/// `BLKDISCARD` (linux/fs.h): `_IO(0x12, 119)`, of two u64, offset and length in bytes.
const BLKDISCARD: libc::c_ulong = 0x12 << 8 | 119;

/// The most bytes that go at a time: a command that is cancelled ends between two of them.
pub(super) const DISCARD_MAX: u64 = 256 << 20;

/// How a block device gives blocks back: the first method that works is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum DiscardMethod {
    /// By io_uring: Linux 6.12.
    Ring,
    /// By ioctl, on a worker.
    Worker,
}

impl DiscardMethod {
    /// As it was stored.
    pub(super) fn of(stored: u8) -> Self {
        if stored == Self::Ring as u8 {
            Self::Ring
        } else {
            Self::Worker
        }
    }
}

/// How a disk makes a range read as zeroes: the first method that works is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Zeroing {
    /// `FALLOC_FL_ZERO_RANGE`: stays allocated.
    Range,
    /// `FALLOC_FL_PUNCH_HOLE`: zero and given back.
    Punch,
    /// Zeroes are written.
    Write,
}

impl fmt::Display for Zeroing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Range => "fallocate zeroes a range",
            Self::Punch => "fallocate makes a hole",
            Self::Write => "zeroes are written",
        })
    }
}

/// Gives a range of a block device back, and blocks until that is done.
pub(super) fn discard(device: &OpenFile, offset: u64, length: u32) -> Result<u32, i32> {
    let range = [offset, u64::from(length)];
    // SAFETY: the kernel reads two u64, which live on until it returns.
    let failed = unsafe { libc::ioctl(device.as_raw_fd(), BLKDISCARD, range.as_ptr()) } < 0;
    if failed {
        let errno = std::io::Error::last_os_error().raw_os_error();
        return Err(errno.unwrap_or(libc::EIO));
    }
    Ok(length)
}
