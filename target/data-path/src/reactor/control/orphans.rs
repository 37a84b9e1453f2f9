//! Commands at disks whose reactor panicked.
//!
//! The reactor's endpoints are closed first. Disks still write into its memory, so [`Orphans`]
//! keeps ring and memory until the last command has ended. Until then the reactor's queues count as
//! connected: the host's next association delays its changes ([`crate::order`]), and the CNTLID is
//! not reused.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_disk::{Finished, Progress, Ring};

use crate::ids::QpairId;
use crate::order::DiskOrder;
use crate::qpair::Association;
use crate::reactor::disks::Disks;
use crate::reactor::ordering;
use crate::request::{RequestId, RequestTable};
use crate::work_id::{WorkId, WorkKind};

/// Interval of checks for ended commands, whose end wakes no thread.
pub(in crate::reactor) const LOOK_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(in crate::reactor) struct Lost {
    pub(in crate::reactor) qpair: QpairId,
    pub(in crate::reactor) association: Association,
    pub(in crate::reactor) commands: Vec<RequestId>,
}

impl Lost {
    fn retire(&self) {
        let Association {
            subsystem,
            controller,
            qid,
            ..
        } = &self.association;
        subsystem.disconnected(controller.cntlid(), *qid);
    }
}

pub(in crate::reactor) struct Orphans {
    pub(in crate::reactor) ring: Ring,
    pub(in crate::reactor) requests: RequestTable,
    pub(in crate::reactor) disks: Disks,
    pub(in crate::reactor) queues: Vec<Lost>,
}

impl Orphans {
    pub(in crate::reactor) fn cancel(&mut self) -> io::Result<()> {
        self.ring.remove_all_files()?;
        for id in self.queues.iter().flat_map(|queue| &queue.commands) {
            let tag = self.requests.work_id(*id, WorkKind::Block);
            self.ring.cancel(tag);
        }
        Ok(())
    }

    pub(in crate::reactor) fn wait_until(&mut self, deadline: Instant) -> io::Result<()> {
        loop {
            self.collect()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if self.is_over() || left.is_zero() {
                return Ok(());
            }
            self.ring.wait(Some(left.min(LOOK_INTERVAL)))?;
        }
    }

    pub(in crate::reactor) fn collect(&mut self) -> io::Result<()> {
        self.ring.submit()?;
        while let Some(finished) = self.ring.pop() {
            if let Finished::Operation { tag, result } = finished {
                self.ended(WorkId::decode(tag), result);
            }
        }
        if self.is_over() {
            for queue in &mut self.queues {
                for id in queue.commands.drain(..) {
                    let request = &mut self.requests[id];
                    ordering::leave(request, &queue.association, &self.disks);
                }
            }
        }
        self.queues.retain(|queue| {
            let is_done = queue.commands.is_empty();
            if is_done {
                queue.retire();
            }
            !is_done
        });
        Ok(())
    }

    fn ended(&mut self, work: WorkId, result: Result<u32, i32>) {
        let Some(id) = self.requests.get(work) else {
            return;
        };
        let request = &mut self.requests[id];
        let (Some(block), Some(disk)) = (&mut request.block, request.disk) else {
            return;
        };
        block.stop();
        let disk = &self.disks[disk];
        let (ring, tag) = (&mut self.ring, work.encode());
        let progress = disk.backend().resume(block, result, ring, disk.file, tag);
        if progress != Progress::Pending {
            let request = &mut self.requests[id];
            for queue in &mut self.queues {
                let before = queue.commands.len();
                queue.commands.retain(|of_queue| *of_queue != id);
                if queue.commands.len() < before {
                    ordering::leave(request, &queue.association, &self.disks);
                }
            }
        }
    }

    pub(in crate::reactor) fn is_over(&self) -> bool {
        self.ring.in_flight() == 0
    }

    pub(in crate::reactor) fn commands(&self) -> usize {
        self.queues.iter().map(|queue| queue.commands.len()).sum()
    }

    pub(in crate::reactor) fn enter_changes_of(&mut self, order: &Arc<DiskOrder>) {
        for queue in &self.queues {
            for &id in &queue.commands {
                let request = &mut self.requests[id];
                let disk = request.disk.map(|disk| &self.disks[disk]);
                if disk.is_some_and(|disk| Arc::ptr_eq(&disk.namespace.order, order)) {
                    ordering::enter_lost(request, id, &queue.association, &self.disks);
                }
            }
        }
    }

    pub(in crate::reactor) fn enter_changes(&mut self, qpair: QpairId) {
        for queue in self.queues.iter().filter(|queue| queue.qpair == qpair) {
            for &id in &queue.commands {
                let request = &mut self.requests[id];
                ordering::enter_lost(request, id, &queue.association, &self.disks);
            }
        }
    }
}
