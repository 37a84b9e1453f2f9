//! A subsystem at one moment, for whoever tells of it.

use std::sync::Arc;

use super::QueueShared;
use crate::metrics::HostTotals;
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
