//! An operation on a disk: what it is, how far it is, how it ended.

use std::fmt;
use std::time::Duration;

use super::pieces::Pieces;
use crate::nvme::{Hints, STATUS};
use crate::ring::Span;

/// What to do with a range of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockOp {
    /// Disk to buffer.
    Read,
    /// Buffer to disk.
    Write {
        /// Done only when on stable storage (FUA).
        durable: bool,
    },
    /// Compare disk and buffer, by a disk that [does so itself](super::Backend::compares).
    Compare,
    /// Read everything and keep nothing. The buffer may be shorter than the range.
    Verify,
    /// Make the range read as zeroes.
    WriteZeroes {
        /// Preferably by giving the range back.
        deallocate: bool,
        /// Done only when on stable storage (FUA).
        durable: bool,
    },
    /// Make the range unreadable until it is written again, by a disk that
    /// [has this](super::Backend::writes_uncorrectable).
    WriteUncorrectable,
    /// Give the range back, if that can be done: advice, not an order.
    Deallocate,
    /// Pass on to a disk that [takes advice](super::Backend::takes_advice) what the host says of ranges. The bytes are those
    /// ranges, as Dataset Management has them; none are on the disk.
    Advise,
    /// Make all finished writes durable.
    Flush,
}

impl BlockOp {
    /// Whether it changes blocks.
    #[inline(always)]
    pub fn changes(self) -> bool {
        match self {
            Self::Read | Self::Compare | Self::Verify | Self::Flush | Self::Advise => false,
            Self::Write { .. }
            | Self::WriteZeroes { .. }
            | Self::WriteUncorrectable
            | Self::Deallocate => true,
        }
    }
}

impl fmt::Display for BlockOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write { .. } => "write",
            Self::Compare => "compare",
            Self::Verify => "verify",
            Self::WriteZeroes { .. } => "write_zeroes",
            Self::WriteUncorrectable => "write_uncorrectable",
            Self::Deallocate => "deallocate",
            Self::Advise => "advise",
            Self::Flush => "flush",
        })
    }
}

/// One operation on a backend, on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockIo {
    /// What to do.
    pub op: BlockOp,
    /// First byte on the disk.
    pub offset: u64,
    /// Bytes on the disk.
    pub length: u64,
    /// The bytes in memory, for operations that move any.
    pub span: Option<Span>,
    /// What the host says of it beside.
    pub hints: Hints,
    /// Bytes that are done.
    pub(super) done: u64,
    /// What is under way of the next ones.
    pub(super) pieces: Pieces,
    /// Whether the last step, making it durable, is under way.
    pub(super) syncing: bool,
    /// Whether nothing more of it may be submitted.
    pub(super) stopped: bool,
    /// How many times in a row the disk asked to try again.
    pub(super) tries: u8,
    /// Whether a write may wait for space in the file: the file's size was looked at.
    pub(super) may_wait: bool,
    /// The method by which its current step zeroes or discards. The result is about this
    /// method, whatever other operations have found out meanwhile.
    pub(super) method: u8,
}

/// How many times in a row a disk may ask to try again. With the pauses between, this is
/// about two seconds.
pub(super) const TRIES_MAX: u8 = 50;

/// The longest pause between two tries, in milliseconds.
const PAUSE_MAX_MS: u64 = 50;

impl BlockIo {
    /// An operation that has not begun.
    #[inline]
    pub fn new(op: BlockOp, offset: u64, length: u64, span: Option<Span>) -> Self {
        Self {
            op,
            offset,
            length,
            span,
            hints: Hints::default(),
            done: 0,
            pieces: Pieces::default(),
            syncing: false,
            stopped: false,
            tries: 0,
            may_wait: false,
            method: 0,
        }
    }

    /// With what the host says of it beside.
    #[inline]
    #[must_use]
    pub fn with_hints(self, hints: Hints) -> Self {
        Self { hints, ..self }
    }

    /// Nothing more of it is submitted: its next step ends it, with `ECANCELED` unless it is
    /// complete by then.
    #[inline]
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Whether it was stopped.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// How long to wait before the next try, which the disk asked for: twice as long each
    /// time, up to a limit.
    pub fn pause(&self) -> Duration {
        let doubled = 1_u64 << u32::from(self.tries.saturating_sub(1)).min(16);
        Duration::from_millis(doubled.min(PAUSE_MAX_MS))
    }

    /// The bytes in memory of an operation that has some.
    pub(super) fn memory(&self) -> Span {
        self.span
            .expect("an operation that moves bytes has a buffer")
    }

    /// The bytes in memory, exactly as many as on the disk.
    pub(super) fn whole(&self) -> Span {
        let length = u32::try_from(self.length).expect("a transfer is at most MDTS");
        self.memory().part(0, length)
    }

    /// The disk's bytes that are left to do.
    pub(super) fn rest(&self) -> (u64, u64) {
        (self.offset + self.done, self.length - self.done)
    }
}

/// An error of the system, by its number; or the status of an NVMe drive, whose numbers are
/// larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// The drive's status: SC in bits 7:0, SCT in bits 10:8, DNR in bit 14.
    #[must_use]
    pub fn drive_status(self) -> Option<u16> {
        let status = self.0.checked_sub(STATUS)?;
        u16::try_from(status).ok()
    }
}

/// How far an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// The ring has it: [`Backend::resume`](super::Backend::resume) with its completion.
    Pending,
    /// The disk asks to try again: [`Backend::begin`](super::Backend::begin) after a [pause](BlockIo::pause). Only
    /// [`Backend::resume`](super::Backend::resume) says so.
    Later,
    /// It ended.
    Done(Result<(), Errno>),
}
