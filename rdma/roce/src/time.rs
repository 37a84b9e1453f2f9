//! The system's clock as the state machines read it.

use std::time::Instant as System;

use cairn_rdma::Clock;
use cairn_roce_proto::time::Instant;

/// A clock that starts when it is made.
#[derive(Debug, Clone)]
pub(crate) struct ProtoClock {
    clock: Clock,
    start: System,
}

impl ProtoClock {
    /// By the provider's clock.
    pub(crate) fn new(clock: Clock) -> Self {
        let start = clock.now();
        Self { clock, start }
    }

    /// The state machines' time.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        Instant::after(self.clock.now().saturating_duration_since(self.start))
    }

    /// The system's time.
    pub(crate) fn system(&self) -> System {
        self.clock.now()
    }

    /// When that is for the system.
    pub(crate) fn to_system(&self, at: Instant) -> System {
        self.start + at.since_start()
    }
}
