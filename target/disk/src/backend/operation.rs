use std::fmt;
use std::time::Duration;

use super::pieces::Pieces;
use crate::nvme::{Hints, STATUS};
use crate::ring::Span;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockOp {
    Read,
    Write {
        /// Whether to complete only on stable storage (FUA).
        durable: bool,
    },
    /// Compares disk and buffer, on a disk that [supports it](super::Backend::compares).
    Compare,
    /// Reads the range, which may exceed the buffer, and discards the data.
    Verify,
    WriteZeroes {
        deallocate: bool,
        durable: bool,
    },
    /// Makes the range unreadable until the next write, on a disk that [supports
    /// it](super::Backend::writes_uncorrectable).
    WriteUncorrectable,
    Deallocate,
    /// Passes hints of a host to a disk that [uses them](super::Backend::takes_advice). The buffer
    /// contains the ranges of Dataset Management, and the offset is unused.
    Advise,
    Flush,
}

impl BlockOp {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    OfTarget,
    OfHost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockIo {
    pub op: BlockOp,
    pub offset: u64,
    pub length: u64,
    /// Buffer of an operation that transfers data.
    pub span: Option<Span>,
    pub hints: Hints,
    pub(super) done: u64,
    pub(super) pieces: Pieces,
    pub(super) syncing: bool,
    stop: Option<Stop>,
    pub(super) tries: u8,
    pub(super) may_wait: bool,
    pub(super) method: u8,
}

pub(super) const TRIES_MAX: u8 = 50;

const PAUSE_MAX_MS: u64 = 50;

impl BlockIo {
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
            stop: None,
            tries: 0,
            may_wait: false,
            method: 0,
        }
    }

    #[inline]
    #[must_use]
    pub fn with_hints(self, hints: Hints) -> Self {
        Self { hints, ..self }
    }

    /// Stops the operation. Its next step ends it, with `ECANCELED` unless it is complete.
    #[inline]
    pub fn stop(&mut self) {
        self.stop.get_or_insert(Stop::OfTarget);
    }

    /// Like [`Self::stop`], at the request of the host.
    #[inline]
    pub fn cancel(&mut self) {
        self.stop = Some(Stop::OfHost);
    }

    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stop.is_some()
    }

    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.stop == Some(Stop::OfHost)
    }

    /// Returns the pause before the next retry, doubled each time up to a limit.
    pub fn pause(&self) -> Duration {
        let doubled = 1_u64 << u32::from(self.tries.saturating_sub(1)).min(16);
        Duration::from_millis(doubled.min(PAUSE_MAX_MS))
    }

    pub(super) fn memory(&self) -> Span {
        self.span
            .expect("an operation that moves bytes has a buffer")
    }

    pub(super) fn whole(&self) -> Span {
        let length = u32::try_from(self.length).expect("a transfer is at most MDTS");
        self.memory().part(0, length)
    }

    pub(super) fn rest(&self) -> (u64, u64) {
        (self.offset + self.done, self.length - self.done)
    }
}

/// Errno of the system, or status of an NVMe drive as a number above all errnos.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// Returns the NVMe status (SC in bits 7:0, SCT in bits 10:8, DNR in bit 14), or `None` for an
    /// errno.
    #[must_use]
    pub fn drive_status(self) -> Option<u16> {
        let status = self.0.checked_sub(STATUS)?;
        u16::try_from(status).ok()
    }
}

/// State of an operation after [`Backend::begin`](super::Backend::begin) or
/// [`Backend::resume`](super::Backend::resume).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// Submitted to the ring. The caller passes the completion to
    /// [`Backend::resume`](super::Backend::resume).
    Pending,
    /// The caller must call [`Backend::begin`](super::Backend::begin) again after a
    /// [pause](BlockIo::pause).
    Later,
    Done(Result<(), Errno>),
}
