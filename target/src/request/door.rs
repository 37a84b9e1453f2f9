//! Restrictions on the start of block I/O: most operations start at once, others take turns, wait
//! for the disk's limit, or wait for older changes.

use cairn_disk::BlockOp;

/// Kinds of operations that take turns at a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Flush,
    Allocation,
}

/// Set of restrictions on an operation, determined when its block I/O is planned. An unrestricted
/// operation costs one comparison per step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Door(u8);

impl Door {
    pub(crate) const OPEN: Self = Self(0);
    /// Waits for a turn of flushes.
    const FLUSH: u8 = 1;
    /// Waits for a turn of fallocates.
    const ALLOCATION: u8 = 2;
    /// Subject to the disk's limit, and not counted.
    const LIMITED: u8 = 4;
    /// Subject to the disk's limit, and counted as in progress.
    const INSIDE: u8 = 8;
    /// Waits for older changes of the same blocks.
    const ORDERED: u8 = 16;

    /// Returns the restrictions of an operation without a limit on its disk.
    #[inline(always)]
    pub(crate) fn of(op: BlockOp) -> Self {
        match op {
            BlockOp::Read
            | BlockOp::Write { .. }
            | BlockOp::Compare
            | BlockOp::Verify
            | BlockOp::Advise => Self::OPEN,
            BlockOp::Flush => Self(Self::FLUSH),
            BlockOp::WriteZeroes { .. } | BlockOp::WriteUncorrectable | BlockOp::Deallocate => {
                Self(Self::ALLOCATION)
            }
        }
    }

    #[inline(always)]
    pub(crate) fn is_open(self) -> bool {
        self == Self::OPEN
    }

    fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }

    /// Adds the disk's limit, and marks the operation as not counted. Operations with turns are
    /// exempt, because turns already limit them.
    pub(crate) fn limited(self) -> Self {
        match self.turn() {
            None => Self(self.0 & !Self::INSIDE | Self::LIMITED),
            Some(_) => self,
        }
    }

    /// Marks the operation as counted by the disk's limit.
    pub(crate) fn inside(self) -> Self {
        Self(self.0 & !Self::LIMITED | Self::INSIDE)
    }

    /// Adds the order of changes.
    pub(crate) fn ordered(self) -> Self {
        Self(self.0 | Self::ORDERED)
    }

    /// True if the disk's limit applies.
    pub(crate) fn is_limited(self) -> bool {
        self.has(Self::LIMITED | Self::INSIDE)
    }

    /// True if the operation is counted by the disk's limit.
    pub(crate) fn is_inside(self) -> bool {
        self.has(Self::INSIDE)
    }

    /// True if the change is entered in the order of its disk.
    #[inline(always)]
    pub(crate) fn is_ordered(self) -> bool {
        self.has(Self::ORDERED)
    }

    /// Kind of turn that the operation needs.
    #[inline(always)]
    pub(crate) fn turn(self) -> Option<Turn> {
        if self.has(Self::FLUSH) {
            Some(Turn::Flush)
        } else if self.has(Self::ALLOCATION) {
            Some(Turn::Allocation)
        } else {
            None
        }
    }
}
