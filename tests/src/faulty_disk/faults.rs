//! Faults and rules of a disk.

use std::ops::Range;
use std::time::Duration;

/// Effect of a pending read or write on its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nature {
    /// The caller continues, as with a disk that has a queue.
    Disk,
    /// Each operation blocks a thread (in an io_uring, a kernel worker), as on a frozen file
    /// system.
    ///
    /// A held write blocks fsync, which needs the file's lock.
    FileSystem,
}

/// Operation that rules can match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// open(2).
    Open,
    /// Read by any system call.
    Read,
    /// Write by any system call.
    Write,
    /// fsync(2), fdatasync(2), and completion of a write with `RWF_DSYNC`.
    Sync,
    /// fallocate(2): zeroing or deallocation.
    Allocate,
    /// Query of the size.
    Look,
    /// close(2).
    Close,
}

impl Op {
    /// Number of operations.
    pub(super) const COUNT: usize = 7;
}

/// Fault that replaces the normal execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Waits until released. Signals do not interrupt the caller, as with a failing disk.
    Hold,
    /// Waits until released. A signal to the caller interrupts it with EINTR.
    HoldUntilInterrupted,
    /// Fails with this errno without effect.
    Fail(i32),
    /// Executes this many bytes and returns that count.
    ///
    /// The kernel turns a short write to a [`Disk`](Nature::Disk) into EIO.
    Short(u32),
    /// Executes after this delay.
    Delay(Duration),
}

/// Fault with the operations that it applies to.
#[derive(Debug, Clone)]
pub struct Rule {
    op: Op,
    fault: Fault,
    bytes: Range<u64>,
    spared: u64,
    times: u64,
}

impl Rule {
    /// Rule for every operation of this type.
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

    /// Restricts the rule to operations on these bytes. Opens and fsyncs match any range.
    #[must_use]
    pub fn within(self, bytes: Range<u64>) -> Self {
        Self { bytes, ..self }
    }

    /// Skips the first `spared` matching operations.
    #[must_use]
    pub fn after(self, spared: u64) -> Self {
        Self { spared, ..self }
    }

    /// Limits the number of faults.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }

    /// Returns the fault for an operation and counts it.
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
