//! The way of a command into its disk: most go straight in, some one after another, some once the disk has fewer, and
//! some after older ones.

use cairn_disk::BlockOp;

/// What takes turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Flush,
    Allocation,
}

/// The way into a disk. It is known when the block I/O is planned, so that a command which goes straight in takes one
/// look at each of its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Door(u8);

impl Door {
    /// Straight in.
    pub(crate) const OPEN: Self = Self(0);
    /// When the turn of its flushes comes.
    const FLUSH: u8 = 1;
    /// When the turn of its fallocates comes.
    const ALLOCATION: u8 = 2;
    /// The disk has so many at a time.
    const LIMITED: u8 = 4;
    /// The disk has so many at a time, and this is one of them.
    const INSIDE: u8 = 8;
    /// After older changes of the same blocks.
    const ORDERED: u8 = 16;

    /// That of an operation, where nothing limits how many a disk has at a time.
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

    /// Whether it is straight in.
    #[inline(always)]
    pub(crate) fn is_open(self) -> bool {
        self == Self::OPEN
    }

    fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }

    /// The same, where something limits how many there are at a time. Those that take turns are few.
    pub(crate) fn limited(self) -> Self {
        match self.turn() {
            None => Self(self.0 & !Self::INSIDE | Self::LIMITED),
            Some(_) => self,
        }
    }

    /// The same, for one that the disk has.
    pub(crate) fn inside(self) -> Self {
        Self(self.0 & !Self::LIMITED | Self::INSIDE)
    }

    /// The same, for a change that is entered in its disk's order.
    pub(crate) fn ordered(self) -> Self {
        Self(self.0 | Self::ORDERED)
    }

    /// Whether it waits until the disk has fewer.
    pub(crate) fn is_limited(self) -> bool {
        self.has(Self::LIMITED | Self::INSIDE)
    }

    /// Whether it is one of so many that the disk has.
    pub(crate) fn is_inside(self) -> bool {
        self.has(Self::INSIDE)
    }

    /// Whether it is entered in its disk's order.
    #[inline(always)]
    pub(crate) fn is_ordered(self) -> bool {
        self.has(Self::ORDERED)
    }

    /// The turn that it waits for.
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
