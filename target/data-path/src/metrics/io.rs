use nvme_proto::io::OperationKind;
use nvme_proto::wire::Status;

use super::counter::{CodeCounts, Counter, Gauge};
use super::histogram::{Histogram, Time, Times};

const NAMESPACE_STATUSES: usize = 32;
const QUEUE_STATUSES: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Read,
    Write,
    Flush,
    Compare,
    Verify,
    WriteZeroes,
    WriteUncorrectable,
    DatasetManagement,
    Copy,
}

impl Op {
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::Read, "read"),
        (Self::Write, "write"),
        (Self::Flush, "flush"),
        (Self::Compare, "compare"),
        (Self::Verify, "verify"),
        (Self::WriteZeroes, "write_zeroes"),
        (Self::WriteUncorrectable, "write_uncorrectable"),
        (Self::DatasetManagement, "dataset_management"),
        (Self::Copy, "copy"),
    ];

    #[inline]
    pub(crate) fn of(kind: OperationKind) -> Self {
        match kind {
            OperationKind::Read => Self::Read,
            OperationKind::Write => Self::Write,
            OperationKind::Flush(_) => Self::Flush,
            OperationKind::Compare => Self::Compare,
            OperationKind::Verify => Self::Verify,
            OperationKind::WriteZeroes => Self::WriteZeroes,
            OperationKind::WriteUncorrectable => Self::WriteUncorrectable,
            OperationKind::DatasetManagement { .. } => Self::DatasetManagement,
            OperationKind::Copy => Self::Copy,
        }
    }

    pub fn has_bytes(self) -> bool {
        !matches!(self, Self::Flush | Self::DatasetManagement)
    }

    #[inline]
    pub(crate) fn class(self) -> Class {
        match self {
            Self::Read => Class::Read,
            Self::Write => Class::Write,
            _ => Class::Other,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Read,
    Write,
    Other,
}

impl Class {
    pub const ALL: [(Self, &'static str); 3] = [
        (Self::Read, "read"),
        (Self::Write, "write"),
        (Self::Other, "other"),
    ];
}

pub const PARTS: [&str; 4] = ["buffer", "data_in", "backend", "data_out"];
const DATA_IN: usize = 1;

pub const WHOLE: &str = "whole";

/// Times at which a command reached each stage, in nanoseconds since the target's start.
#[derive(Debug, Clone, Copy, Default)]
pub struct StageTimes {
    seen_ns: u64,
    held_ns: u64,
    here_ns: u64,
    done_ns: u64,
}

impl StageTimes {
    #[inline]
    pub(crate) fn seen(now_ns: u64) -> Self {
        Self {
            seen_ns: now_ns,
            ..Self::default()
        }
    }

    #[inline]
    pub(crate) fn held(&mut self, now_ns: u64) {
        self.held_ns = now_ns;
        self.here_ns = now_ns;
    }

    #[inline]
    pub(crate) fn fetched(&mut self, now_ns: u64) {
        self.here_ns = now_ns;
    }

    pub(crate) fn seen_ns(&self) -> u64 {
        self.seen_ns
    }

    pub(crate) fn seen_for_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.seen_ns)
    }

    pub(crate) fn here_for_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.here_ns)
    }

    #[inline]
    pub(crate) fn done(&mut self, now_ns: u64) {
        self.done_ns = now_ns;
    }

    pub(crate) fn done_for_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.done_ns)
    }

    #[inline]
    pub(crate) fn whole(&self, now_ns: u64) -> Time {
        Time::of_ns(now_ns - self.seen_ns)
    }

    #[inline]
    fn parts_ns(&self, now_ns: u64) -> [u64; 4] {
        [
            self.held_ns - self.seen_ns,
            self.here_ns - self.held_ns,
            self.done_ns - self.here_ns,
            now_ns - self.done_ns,
        ]
    }
}

#[derive(Debug, Default)]
pub struct Tally {
    pub ios: Counter,
    pub bytes: Counter,
}

impl Tally {
    #[inline]
    fn add(&self, bytes: u64) {
        self.ios.add(1);
        self.bytes.add(bytes);
    }
}

#[derive(Debug, Default)]
pub struct Stages {
    pub parts: [Histogram; 4],
    pub whole: Histogram,
}

/// Aligned to two cache lines, which processors fetch together.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct NamespaceCounters {
    pub ops: [Tally; 9],
    pub stages: [Stages; 3],
    pub in_progress: Gauge,
    pub oldest_ns: Gauge,
    pub errors: CodeCounts<NAMESPACE_STATUSES>,
    pub protection_errors: Counter,
    pub limit_waits: Counter,
    pub limit_wait_ns: Counter,
}

impl NamespaceCounters {
    #[inline]
    pub(crate) fn succeeded(&self, op: Op, bytes: u64) {
        self.ops[op as usize].add(bytes);
    }

    pub(crate) fn failed(&self, status: Status) {
        self.errors.add(status.code().bits());
    }

    pub fn completed(&self) -> u64 {
        let succeeded = self.ops.iter().map(|op| op.ios.get());
        let failed = self.errors.each().map(|(_, count)| count);
        succeeded.chain(failed).sum()
    }

    #[inline]
    pub(crate) fn went(
        &self,
        class: Class,
        at: &StageTimes,
        now_ns: u64,
        whole: Time,
        fetched: bool,
    ) {
        let stages = &self.stages[class as usize];
        for (part, (times, ns)) in stages.parts.iter().zip(at.parts_ns(now_ns)).enumerate() {
            if part == DATA_IN && !fetched {
                continue;
            }
            match ns {
                0 => times.record_none(),
                ns if ns == whole.ns() => times.record(whole),
                ns => times.record(Time::of_ns(ns)),
            }
        }
        stages.whole.record(whole);
    }
}

#[derive(Debug, Default)]
#[repr(align(128))]
pub struct QueueCounters {
    pub depth: Gauge,
    pub classes: [Tally; 3],
    pub(crate) times: [Histogram; 3],
    pub(crate) errors: CodeCounts<QUEUE_STATUSES>,
    pub share_waits: Counter,
    pub pool_waits: Counter,
    pub(crate) limit_waits: Counter,
    pub(crate) limit_wait_ns: Counter,
}

impl QueueCounters {
    #[inline]
    pub(crate) fn succeeded(&self, class: Class, bytes: u64) {
        self.classes[class as usize].add(bytes);
    }

    pub(crate) fn succeeded_admin(&self) {
        self.succeeded(Class::Other, 0);
    }

    pub(crate) fn failed(&self, status: Status) {
        self.errors.add(status.code().bits());
    }

    #[inline]
    pub(crate) fn went(&self, class: Class, whole: Time) {
        self.times[class as usize].record(whole);
    }
}

#[derive(Debug, Clone, Default)]
pub struct HostTotals {
    pub classes: [(u64, u64); 3],
    pub times: [Times; 3],
    /// Failures by status; `None` for statuses without a counter.
    pub errors: std::collections::BTreeMap<Option<u16>, u64>,
    pub share_waits: u64,
    pub pool_waits: u64,
    pub limit_waits: u64,
    pub limit_wait_ns: u64,
}

impl HostTotals {
    pub(crate) fn add(&mut self, queue: &QueueCounters) {
        for (own, tally) in self.classes.iter_mut().zip(&queue.classes) {
            own.0 += tally.ios.get();
            own.1 += tally.bytes.get();
        }
        for (own, times) in self.times.iter_mut().zip(&queue.times) {
            own.add(&times.read());
        }
        for (code, count) in queue.errors.each() {
            *self.errors.entry(code).or_default() += count;
        }
        self.share_waits += queue.share_waits.get();
        self.pool_waits += queue.pool_waits.get();
        self.limit_waits += queue.limit_waits.get();
        self.limit_wait_ns += queue.limit_wait_ns.get();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_stand_at_their_places() {
        assert!((0..).zip(Op::ALL).all(|(at, (op, _))| op as usize == at));
        assert!((0..).zip(Class::ALL).all(|(at, (op, _))| op as usize == at));
        assert_eq!(PARTS[DATA_IN], "data_in");
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let mut at = StageTimes::seen(1_000);
        at.held(1_000);
        at.fetched(4_000);
        at.done(10_000);
        assert_eq!(at.parts_ns(12_000), [0, 3_000, 6_000, 2_000]);
        assert_eq!(at.whole(12_000).ns(), 11_000);
        let mut at = StageTimes::seen(5);
        at.held(7);
        at.done(7);
        assert_eq!(at.parts_ns(9), [2, 0, 0, 2], "nothing was fetched");
    }

    #[test]
    fn queues_that_are_gone_still_count() {
        let queue = QueueCounters::default();
        queue.succeeded(Class::Read, 512);
        queue.failed(Status::LBA_OUT_OF_RANGE.with_dnr());
        queue.went(Class::Read, Time::of_ns(10));
        let mut totals = HostTotals::default();
        totals.add(&queue);
        totals.add(&queue);
        assert_eq!(totals.classes, [(2, 1024), (0, 0), (0, 0)]);
        let code = Status::LBA_OUT_OF_RANGE.bits();
        assert_eq!(totals.errors.get(&Some(code)), Some(&2));
        assert!(!totals.times[0].is_empty());
        assert!(totals.times[1].is_empty());
    }
}
