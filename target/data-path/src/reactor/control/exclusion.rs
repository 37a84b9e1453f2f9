//! Start of exclusion at a disk: see [`crate::order`].

use std::sync::Arc;

use crate::order::DiskOrder;
use crate::reactor::{Reactor, ordering};
use crate::registry::SubsystemShared;
use crate::request::RequestId;

impl Reactor {
    /// Registers the disk's changes in progress; later changes register because `is_exclusive` is
    /// set.
    pub(in crate::reactor) fn join_exclusion(
        &mut self,
        order: &Arc<DiskOrder>,
        subsystem: &Arc<SubsystemShared>,
    ) {
        self.io.disks.begin_exclusion(order);
        let requests: Vec<RequestId> = self.queues.requests.taken().collect();
        for id in requests {
            let disk = self.queues.requests[id].disk;
            let order_of = disk.map(|disk| &self.io.disks[disk].namespace.order);
            if order_of.is_some_and(|of| Arc::ptr_eq(of, order)) {
                ordering::enter_former(&mut self.queues, &self.io, id);
            }
        }
        for orphans in &mut self.control.orphans {
            orphans.enter_changes_of(order);
        }
        for waiter in order.joined(self.control.index) {
            subsystem.wake(waiter);
        }
    }

    /// Repeats [`Self::join_exclusion`], because the panicked reactor may not have joined.
    pub(in crate::reactor) fn rejoin_exclusions(&mut self) {
        let Some(subsystem) = self.control.registry.all().into_iter().next() else {
            return;
        };
        let orders: Vec<Arc<DiskOrder>> = self.io.disks.orders().cloned().collect();
        for order in orders.iter().filter(|order| order.is_exclusive()) {
            self.join_exclusion(order, &subsystem);
        }
    }
}
