//! Time that passed without a round: an idle reactor slept, or its process was stopped, its
//! machine suspended, its thread kept from running.
//!
//! Capsules that came in meanwhile may be stale: their host may have given this target up and gone on
//! by another way. So before anything is taken from a device, associations end whose time
//! is over, by a clock that goes on through all of that; and the reactor itself handles the messages
//! of connection management that have arrived, and ends what they end. It relies on no other thread
//! for that: one that was stopped, too, or waits for a core, may run much later.
//!
//! The same goes for what a round had taken before it was stopped in the middle: the ring looks
//! at the clock before a disk gets a change, and keeps it if there was a gap since the round began.

use super::Reactor;
use crate::ids::QpairId;
use crate::registry::{ControlMessage, KEEP_ALIVE_EXPIRED};
use crate::work_id::WorkId;

pub(super) use cairn_disk::GAP;

impl Reactor {
    /// Learns which connections ended in the gap before this round. From then on the round is as any other.
    pub(super) fn heed_gap(&mut self) {
        self.end_overdue();
        for port in 0..self.queues.ports.len() {
            if let Some(open) = &mut self.queues.ports[port] {
                open.endpoint().drain_connections();
                self.poll_events(port);
            }
        }
        self.read_inbox();
        if !self.time.asleep {
            self.queues.lines.pardon(self.time.now.at);
        }
    }

    /// Reads all completions that devices have. A capsule that came before the gap restarts the timer of its
    /// association now, and not once more after each further gap: so it is executed within twice
    /// KATO of its being sent, however often the target is stopped meanwhile.
    pub(super) fn read_devices(&mut self) {
        for port in 0..self.queues.ports.len() {
            self.drain_port(port);
        }
    }

    /// Ends the queues of associations whose time is over: nothing of theirs is executed
    /// that was not already.
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

    /// Ends a queue of an association whose time is over.
    pub(super) fn expire(&mut self, qpair: QpairId) {
        self.close(qpair, KEEP_ALIVE_EXPIRED);
        // Its other queues are the control plane's to end.
        let _ = self.control.plane.send(ControlMessage::TimersChanged);
    }

    /// Why an operation was cancelled, if it was not taken back: then it was a change whose lease
    /// had ended before it could begin. The association ends now, before an answer could leave.
    /// If its host sent something in time, while the change waited for its turn, it is tried again.
    #[cold]
    pub(super) fn why_cancelled(&mut self, work: WorkId) -> i32 {
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
