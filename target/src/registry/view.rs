//! A subsystem at one moment, for reports of it.

use std::sync::Arc;

use super::QueueShared;
use crate::metrics::{HostTotals, QueueCounters};
use crate::namespace::NamespaceTable;

/// A subsystem.
#[derive(Debug)]
pub(crate) struct SubsystemView {
    /// Its namespaces.
    pub(crate) namespaces: Arc<NamespaceTable>,
    /// Its controllers, by ascending CNTLID.
    pub(crate) controllers: Vec<ControllerView>,
}

/// A controller.
#[derive(Debug)]
pub(crate) struct ControllerView {
    /// CNTLID.
    pub(crate) cntlid: u16,
    /// HOSTNQN, escaped.
    pub(crate) host_nqn: String,
    /// HOSTID.
    pub(crate) hostid: [u8; 16],
    /// What queues did that are gone.
    pub(crate) past: HostTotals,
    /// Its queues, by ascending QID.
    pub(crate) queues: Vec<(u16, Arc<QueueShared>)>,
}

impl ControllerView {
    /// What all of its queues did.
    pub(crate) fn totals(&self) -> HostTotals {
        let mut totals = self.past.clone();
        for (_, queue) in &self.queues {
            totals.add(&queue.counters);
        }
        totals
    }
}

/// What hosts that came by one listener do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Activity {
    /// Their controllers.
    pub(crate) associations: usize,
    /// I/O commands accepted and not answered.
    pub(crate) outstanding: u64,
    /// I/O commands answered.
    pub(crate) answered: u64,
}

impl Activity {
    /// Adds what an I/O queue does.
    pub(super) fn add_queue(&mut self, queue: &QueueCounters) {
        let succeeded = queue.classes.iter().map(|class| class.ios.get());
        let failed = queue.errors.each().map(|(_, count)| count);
        self.outstanding += queue.depth.get();
        self.answered += succeeded.sum::<u64>() + failed.sum::<u64>();
    }
}

impl std::ops::Add for Activity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            associations: self.associations + other.associations,
            outstanding: self.outstanding + other.outstanding,
            answered: self.answered + other.answered,
        }
    }
}
