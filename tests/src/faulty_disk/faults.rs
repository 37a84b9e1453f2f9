//! What a disk does to which of its operations.

use std::ops::Range;
use std::time::Duration;

/// What a caller's reads and writes do to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nature {
    /// They are under way while the caller goes on, as on a disk with a queue.
    Disk,
    /// Each occupies a thread, in an io_uring a worker of the kernel, until it is done, as on a
    /// frozen file system. A write that is held keeps fsync waiting for the file's lock.
    FileSystem,
}

/// An operation that can be disturbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// open(2).
    Open,
    /// A read, by any call.
    Read,
    /// A write, by any call.
    Write,
    /// fsync(2), fdatasync(2), and the end of a write with `RWF_DSYNC`.
    Sync,
    /// fallocate(2): zeroing, or giving back.
    Allocate,
    /// A look at the size.
    Look,
    /// close(2).
    Close,
}

impl Op {
    /// How many there are.
    pub(super) const COUNT: usize = 7;
}

/// What happens to an operation instead of what should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It waits until it is let go, whatever its caller does: a caller that is killed waits,
    /// too, as with a disk in trouble.
    Hold,
    /// It waits until it is let go, or until its caller gets a signal, and then fails by EINTR.
    HoldUntilInterrupted,
    /// It fails with this errno, and nothing is done.
    Fail(i32),
    /// So many bytes of it are done, and the caller gets that count. Of a write to a
    /// [`Disk`](Nature::Disk) the kernel makes EIO.
    Short(u32),
    /// It is done after this time.
    Delay(Duration),
}

/// A fault, and the operations it is for.
#[derive(Debug, Clone)]
pub struct Rule {
    op: Op,
    fault: Fault,
    bytes: Range<u64>,
    spared: u64,
    times: u64,
}

impl Rule {
    /// Each operation of this kind, from now on.
    #[must_use]
    pub fn new(op: Op, fault: Fault) -> Self {
        Self {
            op,
            fault,
            bytes: 0..u64::MAX,
            spared: 0,
            times: u64::MAX,
        }
    }

    /// Only operations that touch these bytes. Opens and fsyncs touch all.
    #[must_use]
    pub fn within(self, bytes: Range<u64>) -> Self {
        Self { bytes, ..self }
    }

    /// The first so many are spared.
    #[must_use]
    pub fn after(self, spared: u64) -> Self {
        Self { spared, ..self }
    }

    /// It happens so often, then no more.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }

    /// What happens to this operation; counts it.
    pub(super) fn judge(&mut self, op: Op, bytes: &Range<u64>) -> Option<Fault> {
        let touches = self.bytes.start < bytes.end && bytes.start < self.bytes.end;
        if op != self.op || !touches || self.times == 0 {
            return None;
        }
        if self.spared > 0 {
            self.spared -= 1;
            return None;
        }
        self.times -= 1;
        Some(self.fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_spares_and_then_strikes_so_often() {
        let mut rule = Rule::new(Op::Write, Fault::Hold)
            .within(4096..8192)
            .after(1)
            .times(1);
        assert_eq!(rule.judge(Op::Write, &(0..4096)), None, "another place");
        assert_eq!(rule.judge(Op::Read, &(4096..4608)), None, "another kind");
        assert_eq!(rule.judge(Op::Write, &(4096..4608)), None, "spared");
        assert_eq!(rule.judge(Op::Write, &(0..8192)), Some(Fault::Hold));
        assert_eq!(rule.judge(Op::Write, &(0..8192)), None, "once");
    }
}
