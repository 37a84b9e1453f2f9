//! Round after a gap: the reactor slept, or its thread did not run.
//!
//! Capsules that arrived in the gap may be stale, because their hosts may use another path by now.
//! The reactor therefore first ends expired associations. It also handles connection events,
//! because other threads may have stopped, too.

use crate::ids::QpairId;
use crate::reactor::Reactor;
use crate::registry::{ControlMessage, KEEP_ALIVE_EXPIRED};
use crate::work_id::WorkId;

pub(in crate::reactor) use cairn_disk::ROUND_GAP;

impl Reactor {
    pub(in crate::reactor) fn begin_late_round(&mut self) {
        self.end_overdue();
        for port in 0..self.queues.ports.len() {
            if let Some(open) = &mut self.queues.ports[port] {
                open.endpoint().drain_connections();
                self.poll_events(port);
            }
        }
        self.read_inbox();
        if !self.time.asleep {
            self.queues.capsule_queues.pardon(self.time.now.at);
        }
    }

    /// Polls the devices after a gap, so that received capsules restart keep alive timers before
    /// the next gap. A capsule is then executed at most twice KATO after its host sent it.
    pub(in crate::reactor) fn read_devices(&mut self) {
        for port in 0..self.queues.ports.len() {
            self.drain_port(port);
        }
    }

    fn end_overdue(&mut self) {
        let overdue: Vec<QpairId> = self
            .queues
            .qpairs
            .ids()
            .filter(|&id| {
                self.queues.qpairs[id].is_open() && self.queues.qpairs[id].is_over(self.time.now.ns)
            })
            .collect();
        for qpair in overdue {
            self.expire(qpair);
        }
    }

    pub(in crate::reactor) fn expire(&mut self, qpair: QpairId) {
        self.close(qpair, KEEP_ALIVE_EXPIRED);
        let _ = self.control.plane.send(ControlMessage::TimersChanged);
    }

    /// Returns `EAGAIN` (retry) if the operation was cancelled only because its lease (KATO) ended,
    /// and the host has extended the lease since; otherwise `ECANCELED`. Closes the queue pair if
    /// the lease has ended.
    #[cold]
    pub(in crate::reactor) fn why_cancelled(&mut self, work: WorkId) -> i32 {
        let id = self.queues.requests.find(work);
        let request = &self.queues.requests[id];
        let block = request.block.as_ref().expect("block I/O is planned");
        let queue = &self.queues.qpairs[request.qpair];
        if block.is_stopped() || !queue.is_open() {
            return libc::ECANCELED;
        }
        let since_start = self.time.clock.now().duration_since(self.time.started);
        if !queue.is_over(since_start.as_nanos() as u64) {
            return libc::EAGAIN;
        }
        let qpair = request.qpair;
        self.expire(qpair);
        libc::ECANCELED
    }
}
