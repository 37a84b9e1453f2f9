use std::fmt;

/// Maximum bytes of a discard. A command can be cancelled only between two discards.
pub(super) const DISCARD_MAX: u64 = 256 << 20;

/// Methods to zero a range. A disk keeps using the first method that works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Zeroing {
    /// `FALLOC_FL_ZERO_RANGE`: the range stays allocated.
    Range,
    /// `FALLOC_FL_PUNCH_HOLE`: the range is deallocated.
    Punch,
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
