use std::ops::Range;
use std::time::Duration;

/// Effect of a held read or write on the calling thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nature {
    /// The thread continues: the disk queues the operation.
    Disk,
    /// The thread, an io_uring worker, blocks as in a frozen file system. A held write also keeps
    /// the file's lock, which blocks fsync.
    FileSystem,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Open,
    Read,
    Write,
    /// fsync(2), fdatasync(2), or the completion of a write with `RWF_DSYNC`.
    Sync,
    Allocate,
    /// Query of the size.
    Look,
    Close,
}

impl Op {
    pub(super) const COUNT: usize = 7;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The operation waits until released; signals do not interrupt the caller.
    Hold,
    /// The operation waits until released; a signal interrupts the caller with EINTR.
    HoldUntilInterrupted,
    Fail(i32),
    /// The operation transfers only this number of bytes. After a short write to a
    /// [`Disk`](Nature::Disk), the kernel returns EIO.
    Short(u32),
    Delay(Duration),
}

#[derive(Debug, Clone)]
pub struct Rule {
    op: Op,
    fault: Fault,
    bytes: Range<u64>,
    spared: u64,
    times: u64,
}

impl Rule {
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

    /// Restricts the rule to operations on these bytes; operations without a range still match.
    #[must_use]
    pub fn within(self, bytes: Range<u64>) -> Self {
        Self { bytes, ..self }
    }

    #[must_use]
    pub fn after(self, spared: u64) -> Self {
        Self { spared, ..self }
    }

    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }

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
