use std::sync::Arc;

use super::QueueShared;
use crate::metrics::{HostTotals, QueueCounters};
use crate::namespace::NamespaceTable;

#[derive(Debug)]
pub struct SubsystemView {
    pub namespaces: Arc<NamespaceTable>,
    pub controllers: Vec<ControllerView>,
}

#[derive(Debug)]
pub struct ControllerView {
    pub cntlid: u16,
    pub host_nqn: String,
    pub hostid: [u8; 16],
    pub(crate) past: HostTotals,
    pub queues: Vec<(u16, Arc<QueueShared>)>,
}

impl ControllerView {
    pub fn totals(&self) -> HostTotals {
        let mut totals = self.past.clone();
        for (_, queue) in &self.queues {
            totals.add(&queue.counters);
        }
        totals
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activity {
    pub associations: usize,
    pub outstanding: u64,
    pub(crate) answered: u64,
}

impl Activity {
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
