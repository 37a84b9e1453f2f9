//! What is counted of I/O commands: for each namespace, and for each queue.

use nvme_proto::io::Operation;
use nvme_proto::wire::Status;

use super::counter::{CodeCounts, Counter, Gauge};
use super::histogram::{Histogram, Times};

/// Statuses that are told apart of one namespace.
const NAMESPACE_STATUSES: usize = 32;
/// Statuses that are told apart of one queue.
const QUEUE_STATUSES: usize = 16;

/// What a command does, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Read,
    Write,
    Flush,
    Compare,
    Verify,
    WriteZeroes,
    DatasetManagement,
}

impl Op {
    pub(crate) const ALL: [(Self, &'static str); 7] = [
        (Self::Read, "read"),
        (Self::Write, "write"),
        (Self::Flush, "flush"),
        (Self::Compare, "compare"),
        (Self::Verify, "verify"),
        (Self::WriteZeroes, "write_zeroes"),
        (Self::DatasetManagement, "dataset_management"),
    ];

    /// That of a command.
    #[inline]
    pub(crate) fn of(operation: &Operation) -> Self {
        match operation {
            Operation::Read(_) => Self::Read,
            Operation::Write(_) => Self::Write,
            Operation::Flush(_) => Self::Flush,
            Operation::Compare(_) => Self::Compare,
            Operation::Verify(_) => Self::Verify,
            Operation::WriteZeroes { .. } => Self::WriteZeroes,
            Operation::DatasetManagement { .. } => Self::DatasetManagement,
        }
    }

    /// Whether its bytes can be told: those of Dataset Management are ranges.
    pub(crate) fn has_bytes(self) -> bool {
        !matches!(self, Self::Flush | Self::DatasetManagement)
    }

    /// The coarser division.
    #[inline]
    pub(crate) fn class(self) -> Class {
        match self {
            Self::Read => Class::Read,
            Self::Write => Class::Write,
            _ => Class::Other,
        }
    }
}

/// What a command does, roughly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Read,
    Write,
    Other,
}

impl Class {
    pub(crate) const ALL: [(Self, &'static str); 3] = [
        (Self::Read, "read"),
        (Self::Write, "write"),
        (Self::Other, "other"),
    ];
}

/// A part of a command's way. What follows the last is the way of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Until it has its place and its buffers.
    Buffer,
    /// Until the host's data is here.
    DataIn,
    /// Until the disk is done.
    Backend,
    /// Until the response is acknowledged.
    DataOut,
}

impl Part {
    pub(crate) const ALL: [(Self, &'static str); 4] = [
        (Self::Buffer, "buffer"),
        (Self::DataIn, "data_in"),
        (Self::Backend, "backend"),
        (Self::DataOut, "data_out"),
    ];
}

/// The label of all parts together.
pub(crate) const WHOLE: &str = "whole";

/// When a command was where, in nanoseconds of its reactor.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Way {
    began_ns: u64,
    since_ns: u64,
    parts_ns: [u64; 4],
}

impl Way {
    /// It begins.
    #[inline]
    pub(crate) fn begin(now_ns: u64) -> Self {
        Self {
            began_ns: now_ns,
            since_ns: now_ns,
            parts_ns: [0; 4],
        }
    }

    /// A part of it ends. A part can end more than once; parts that do not end
    /// took no time.
    #[inline]
    pub(crate) fn end(&mut self, part: Part, now_ns: u64) {
        self.parts_ns[part as usize] += now_ns - self.since_ns;
        self.since_ns = now_ns;
    }

    /// How long all of it took, as far as it has ended.
    #[inline]
    fn whole_ns(&self) -> u64 {
        self.since_ns - self.began_ns
    }
}

/// Commands and bytes.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) ios: Counter,
    pub(crate) bytes: Counter,
}

impl Tally {
    #[inline]
    fn add(&self, bytes: u64) {
        self.ios.add(1);
        self.bytes.add(bytes);
    }
}

/// How long the commands of a class took, by part.
#[derive(Debug, Default)]
pub(crate) struct Stages {
    pub(crate) parts: [Histogram; 4],
    pub(crate) whole: Histogram,
}

/// What one reactor did for one namespace. Aligned so that no two reactors
/// write to one cache line (or to a pair that is fetched together).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct NamespaceCounters {
    /// Commands that succeeded, by [`Op`].
    pub(crate) ops: [Tally; 7],
    /// How long they took, by [`Class`].
    pub(crate) stages: [Stages; 3],
    pub(crate) in_progress: Gauge,
    pub(crate) errors: CodeCounts<NAMESPACE_STATUSES>,
}

impl NamespaceCounters {
    /// A command succeeded.
    #[inline]
    pub(crate) fn succeeded(&self, op: Op, bytes: u64) {
        self.ops[op as usize].add(bytes);
    }

    /// A command failed.
    pub(crate) fn failed(&self, status: Status) {
        self.errors.add(status.code().bits());
    }

    /// The way of a command that succeeded has ended.
    #[inline]
    pub(crate) fn went(&self, class: Class, way: &Way, fetched: bool) {
        let stages = &self.stages[class as usize];
        for (part, _) in Part::ALL {
            if part != Part::DataIn || fetched {
                stages.parts[part as usize].record(way.parts_ns[part as usize]);
            }
        }
        stages.whole.record(way.whole_ns());
    }
}

/// What a queue did. Its reactor alone writes it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct QueueCounters {
    /// Commands accepted and not answered.
    pub(crate) depth: Gauge,
    /// Commands that succeeded, by [`Class`].
    pub(crate) classes: [Tally; 3],
    /// How long they took, by [`Class`].
    pub(crate) times: [Histogram; 3],
    pub(crate) errors: CodeCounts<QUEUE_STATUSES>,
    /// Commands that waited for their host's share of the buffers.
    pub(crate) share_waits: Counter,
    /// Commands that waited for buffers.
    pub(crate) pool_waits: Counter,
}

impl QueueCounters {
    /// A command succeeded.
    #[inline]
    pub(crate) fn succeeded(&self, class: Class, bytes: u64) {
        self.classes[class as usize].add(bytes);
    }

    /// A command of the admin queue succeeded.
    pub(crate) fn succeeded_admin(&self) {
        self.succeeded(Class::Other, 0);
    }

    /// A command failed.
    pub(crate) fn failed(&self, status: Status) {
        self.errors.add(status.code().bits());
    }

    /// The way of a command that succeeded has ended.
    #[inline]
    pub(crate) fn went(&self, class: Class, way: &Way) {
        self.times[class as usize].record(way.whole_ns());
    }
}

/// What the queues of a controller did, those that are gone included.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostTotals {
    /// (commands, bytes), by [`Class`].
    pub(crate) classes: [(u64, u64); 3],
    pub(crate) times: [Times; 3],
    /// By status; `None` is all that were not told apart.
    pub(crate) errors: std::collections::BTreeMap<Option<u16>, u64>,
    pub(crate) share_waits: u64,
    pub(crate) pool_waits: u64,
}

impl HostTotals {
    /// Adds what a queue did.
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_stand_at_their_places() {
        assert!((0..).zip(Op::ALL).all(|(at, (op, _))| op as usize == at));
        assert!((0..).zip(Class::ALL).all(|(at, (op, _))| op as usize == at));
        assert!((0..).zip(Part::ALL).all(|(at, (op, _))| op as usize == at));
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let mut way = Way::begin(1_000);
        way.end(Part::Buffer, 1_000);
        way.end(Part::DataIn, 4_000);
        way.end(Part::Backend, 9_000);
        way.end(Part::Backend, 10_000);
        way.end(Part::DataOut, 12_000);
        assert_eq!(way.parts_ns, [0, 3_000, 6_000, 2_000]);
        assert_eq!(way.whole_ns(), 11_000);
    }

    #[test]
    fn queues_that_are_gone_still_count() {
        let queue = QueueCounters::default();
        queue.succeeded(Class::Read, 512);
        queue.failed(Status::LBA_OUT_OF_RANGE.with_dnr());
        queue.went(Class::Read, &Way::begin(0));
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
