//! Restrictions on the start of block I/O: serialized operations, the disk's limit, and older
//! changes.

use cairn_disk::BlockOp;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Flush,
    Allocation,
}

/// Determined when block I/O is planned. An unrestricted operation costs one comparison per step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Door(u8);

impl Door {
    pub(crate) const OPEN: Self = Self(0);
    const FLUSH: u8 = 1;
    const ALLOCATION: u8 = 2;
    /// The operation waits for the disk's limit, and does not count against it yet.
    const LIMITED: u8 = 4;
    /// The operation counts against the disk's limit.
    const INSIDE: u8 = 8;
    /// The operation waits for older changes of the same blocks.
    const ORDERED: u8 = 16;

    /// Returns the restrictions without a limit of the disk.
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

    /// Adds the disk's limit, except to flushes and allocations, which the disk's queues serialize.
    pub(crate) fn limited(self) -> Self {
        match self.turn() {
            None => Self(self.0 & !Self::INSIDE | Self::LIMITED),
            Some(_) => self,
        }
    }

    pub(crate) fn inside(self) -> Self {
        Self(self.0 & !Self::LIMITED | Self::INSIDE)
    }

    pub(crate) fn ordered(self) -> Self {
        Self(self.0 | Self::ORDERED)
    }

    pub(crate) fn is_limited(self) -> bool {
        self.has(Self::LIMITED | Self::INSIDE)
    }

    pub(crate) fn is_inside(self) -> bool {
        self.has(Self::INSIDE)
    }

    #[inline(always)]
    pub(crate) fn is_ordered(self) -> bool {
        self.has(Self::ORDERED)
    }

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
