//! The way of a command into its disk: most go straight in, some one after another, and some once the disk has fewer.

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
pub(crate) enum Door {
    /// Straight in.
    Open,
    /// When its turn comes.
    ByTurns(Turn),
    /// The disk has so many at a time.
    Limited,
    /// The disk has so many at a time, and this is one of them.
    Inside,
}

impl Door {
    /// That of an operation, where nothing limits how many a disk has at a time.
    #[inline(always)]
    pub(crate) fn of(op: BlockOp) -> Self {
        match op {
            BlockOp::Read
            | BlockOp::Write { .. }
            | BlockOp::Compare
            | BlockOp::Verify
            | BlockOp::Advise => Self::Open,
            BlockOp::Flush => Self::ByTurns(Turn::Flush),
            BlockOp::WriteZeroes { .. } | BlockOp::WriteUncorrectable | BlockOp::Deallocate => {
                Self::ByTurns(Turn::Allocation)
            }
        }
    }

    /// The same, where something does.
    pub(crate) fn limited(self) -> Self {
        match self {
            Self::Open => Self::Limited,
            other => other,
        }
    }

    /// The turn that it waits for.
    #[inline(always)]
    pub(crate) fn turn(self) -> Option<Turn> {
        match self {
            Self::ByTurns(turn) => Some(turn),
            Self::Open | Self::Limited | Self::Inside => None,
        }
    }
}
