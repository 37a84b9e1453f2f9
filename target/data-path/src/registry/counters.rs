//! Counters for the SMART log, one set per reactor and subsystem.

use std::sync::Arc;
use std::time::Duration;

use nvme_proto::controller::SmartCounters;

use crate::metrics::{Counter, Op};

/// Aligned to two cache lines, which processors fetch together.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct IoCounters {
    pub read_commands: Counter,
    pub read_bytes: Counter,
    pub write_commands: Counter,
    pub written_bytes: Counter,
    pub media_errors: Counter,
    pub busy_ns: Counter,
}

impl IoCounters {
    #[inline]
    pub(crate) fn succeeded(&self, op: Op, bytes: u64) {
        match op {
            Op::Read | Op::Compare | Op::Verify => {
                self.read_commands.add(1);
                self.read_bytes.add(bytes);
            }
            Op::Write => {
                self.write_commands.add(1);
                self.written_bytes.add(bytes);
            }
            Op::Flush
            | Op::WriteZeroes
            | Op::WriteUncorrectable
            | Op::DatasetManagement
            | Op::Copy => {}
        }
    }
}

/// Returns the SMART log (log page 02h). The counters restart with the process, so it reports one
/// power cycle and no unsafe shutdown.
pub(crate) fn smart(sets: &[Arc<IoCounters>], power_on: Duration) -> SmartCounters {
    let sum =
        |counter: fn(&IoCounters) -> &Counter| sets.iter().map(|set| counter(set).get()).sum();
    // Reactors work in parallel, so the largest time is the best estimate.
    let busy_ns = sets.iter().map(|set| set.busy_ns.get()).max().unwrap_or(0);
    SmartCounters {
        read_bytes: sum(|set| &set.read_bytes),
        written_bytes: sum(|set| &set.written_bytes),
        read_commands: sum(|set| &set.read_commands),
        write_commands: sum(|set| &set.write_commands),
        busy: Duration::from_nanos(busy_ns),
        power_on,
        power_cycles: 1,
        unsafe_shutdowns: 0,
        media_errors: sum(|set| &set.media_errors),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reactors_are_summed_up() {
        let sets = [Arc::<IoCounters>::default(), Arc::default()];
        sets[0].read_bytes.add(512);
        sets[1].read_bytes.add(1024);
        sets[0].busy_ns.add(5);
        sets[1].busy_ns.add(7);
        let smart = smart(&sets, Duration::from_secs(9));
        assert_eq!(smart.read_bytes, 1536);
        assert_eq!(smart.busy, Duration::from_nanos(7));
        assert_eq!(smart.power_on, Duration::from_secs(9));
    }
}
