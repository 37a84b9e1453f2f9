//! Methods to zero blocks.

use std::fmt;

/// Most bytes of a block device that are discarded at a time: a command that is cancelled ends between
/// two of them.
pub(super) const DISCARD_MAX: u64 = 256 << 20;

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
