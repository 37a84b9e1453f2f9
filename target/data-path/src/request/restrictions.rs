//! Restrictions on the start of block I/O: serialized flushes and allocations, depth limit, order
//! of changes.

use cairn_disk::BlockOp;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SerialKind {
    Flush,
    Allocation,
}

/// Set when block I/O is planned. Without restrictions, each step costs one comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Restrictions(u8);

impl Restrictions {
    pub(crate) const NONE: Self = Self(0);
    const FLUSH: u8 = 1;
    const ALLOCATION: u8 = 2;
    /// Must pass the depth limit, and does not count against it yet.
    const LIMITED: u8 = 4;
    /// Counts against the depth limit.
    const COUNTED: u8 = 8;
    /// Takes part in its disk's order of changes ([`crate::order`]).
    const ORDERED: u8 = 16;

    #[inline(always)]
    pub(crate) fn of(op: BlockOp) -> Self {
        match op {
            BlockOp::Read
            | BlockOp::Write { .. }
            | BlockOp::Compare
            | BlockOp::Verify
            | BlockOp::Advise => Self::NONE,
            BlockOp::Flush => Self(Self::FLUSH),
            BlockOp::WriteZeroes { .. } | BlockOp::WriteUncorrectable | BlockOp::Deallocate => {
                Self(Self::ALLOCATION)
            }
        }
    }

    #[inline(always)]
    pub(crate) fn is_none(self) -> bool {
        self == Self::NONE
    }

    fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }

    pub(crate) fn limited(self) -> Self {
        match self.serial_kind() {
            None => Self(self.0 & !Self::COUNTED | Self::LIMITED),
            Some(_) => self,
        }
    }

    pub(crate) fn counted(self) -> Self {
        Self(self.0 & !Self::LIMITED | Self::COUNTED)
    }

    pub(crate) fn ordered(self) -> Self {
        Self(self.0 | Self::ORDERED)
    }

    pub(crate) fn is_limited(self) -> bool {
        self.has(Self::LIMITED | Self::COUNTED)
    }

    pub(crate) fn is_counted(self) -> bool {
        self.has(Self::COUNTED)
    }

    #[inline(always)]
    pub(crate) fn is_ordered(self) -> bool {
        self.has(Self::ORDERED)
    }

    #[inline(always)]
    pub(crate) fn serial_kind(self) -> Option<SerialKind> {
        if self.has(Self::FLUSH) {
            Some(SerialKind::Flush)
        } else if self.has(Self::ALLOCATION) {
            Some(SerialKind::Allocation)
        } else {
            None
        }
    }
}
