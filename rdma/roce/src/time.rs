use std::time::Instant as System;

use cairn_base::Clock;
use cairn_roce_proto::time::Instant;

#[derive(Debug, Clone)]
pub(crate) struct ProtoClock {
    clock: Clock,
    start: System,
}

impl ProtoClock {
    pub(crate) fn new(clock: Clock) -> Self {
        let start = clock.now();
        Self { clock, start }
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        Instant::after(self.clock.now().saturating_duration_since(self.start))
    }

    pub(crate) fn system(&self) -> System {
        self.clock.now()
    }

    pub(crate) fn to_system(&self, at: Instant) -> System {
        self.start + at.since_start()
    }
}
