//! What is left of a reactor that panicked.
//!
//! A panic says that an invariant of the reactor is broken, so nothing of it goes on. Its
//! endpoints are closed first: no device moves a byte for it any more, and its hosts see
//! that their connections are gone. The disks cannot be stopped so: they still have
//! commands, and write what they read into its memory. So its ring stays, with the memory
//! that the ring knows, until the last of these has ended ([`Remains`]). Nothing more is
//! submitted; what the ring was about to submit has lost its files.
//!
//! Until then, too, the queues of these commands count as connected: changes of their host's next
//! association wait for them ([`crate::order`]), and their CNTLID is not used again.

use std::io;
use std::time::{Duration, Instant};

use cairn_disk::{Finished, Progress, Ring};

use super::disks::Disks;
use super::ordering;
use crate::ids::QpairId;
use crate::qpair::Association;
use crate::request::{RequestId, RequestTable};
use crate::work_id::{WorkId, WorkKind};

/// How often to look whether disks have let go, while nothing else wakes the reactor.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A queue of a reactor that panicked.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) qpair: QpairId,
    pub(super) association: Association,
    /// Its commands that a disk may have.
    pub(super) commands: Vec<RequestId>,
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

/// What disks still have of a reactor that panicked.
pub(super) struct Remains {
    pub(super) ring: Ring,
    pub(super) requests: RequestTable,
    pub(super) disks: Disks,
    pub(super) queues: Vec<Lost>,
}

impl Remains {
    /// Asks the disks to let go.
    pub(super) fn cancel(&mut self) -> io::Result<()> {
        self.ring.remove_all_files()?;
        for id in self.queues.iter().flat_map(|queue| &queue.commands) {
            let tag = self.requests.work_id(*id, WorkKind::Block);
            self.ring.cancel(tag);
        }
        Ok(())
    }

    /// Waits for the disks until then.
    pub(super) fn wait_until(&mut self, deadline: Instant) -> io::Result<()> {
        loop {
            self.collect()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if self.is_over() || left.is_zero() {
                return Ok(());
            }
            self.ring.wait(Some(left.min(LOOK_INTERVAL)))?;
        }
    }

    /// Takes what disks have ended.
    pub(super) fn collect(&mut self) -> io::Result<()> {
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

    /// A step of block I/O has ended, and with it the operation, unless more of it is with
    /// the disk. What the disk lost is remembered, as ever.
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

    /// Whether the disks have nothing of it any more.
    pub(super) fn is_over(&self) -> bool {
        self.ring.in_flight() == 0
    }

    /// Commands that disks may have.
    pub(super) fn commands(&self) -> usize {
        self.queues.iter().map(|queue| queue.commands.len()).sum()
    }

    /// Enters the changes that disks have of a queue.
    pub(super) fn enter_changes(&mut self, qpair: QpairId) {
        for queue in self.queues.iter().filter(|queue| queue.qpair == qpair) {
            for &id in &queue.commands {
                let request = &mut self.requests[id];
                ordering::enter_lost(request, id, &queue.association, &self.disks);
            }
        }
    }
}
