//! Progress counters of a running job, which other threads read.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::lane::Direction;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    Waiting = 0,
    /// The job runs, but is not yet measured.
    Ramp = 1,
    Running = 2,
    /// The job reads written blocks back.
    Verifying = 3,
    Ended = 4,
}

#[derive(Debug, Default)]
pub(super) struct Meter {
    phase: AtomicU8,
    directions: [Counter; 2],
    /// Bytes to transfer in this phase; 0 if not known in advance.
    pub(super) goal: AtomicU64,
}

#[derive(Debug, Default)]
struct Counter {
    ios: AtomicU64,
    bytes: AtomicU64,
    latency_ns: AtomicU64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    pub ios: u64,
    pub bytes: u64,
    pub latency_ns: u64,
}

impl Count {
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            ios: self.ios - earlier.ios,
            bytes: self.bytes - earlier.bytes,
            latency_ns: self.latency_ns - earlier.latency_ns,
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            ios: self.ios + other.ios,
            bytes: self.bytes + other.bytes,
            latency_ns: self.latency_ns + other.latency_ns,
        }
    }
}

impl Meter {
    #[must_use]
    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Waiting,
            1 => Phase::Ramp,
            2 => Phase::Running,
            3 => Phase::Verifying,
            _ => Phase::Ended,
        }
    }

    pub(super) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }

    #[must_use]
    pub(super) fn count(&self, direction: Direction) -> Count {
        let counter = &self.directions[direction as usize];
        Count {
            ios: counter.ios.load(Relaxed),
            bytes: counter.bytes.load(Relaxed),
            latency_ns: counter.latency_ns.load(Relaxed),
        }
    }

    pub(super) fn add(&self, direction: Direction, bytes: u64, latency: Duration) {
        let counter = &self.directions[direction as usize];
        counter.ios.fetch_add(1, Relaxed);
        counter.bytes.fetch_add(bytes, Relaxed);
        counter
            .latency_ns
            .fetch_add(latency.as_nanos() as u64, Relaxed);
    }
}
