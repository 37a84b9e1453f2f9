//! Closing of queue pairs.
//!
//! A queue pair is destroyed when all its send work has completed, the device uses no more receives
//! for it ("last WQE reached"), and the completion queue was then polled until empty. An earlier
//! destruction would lose receives of the shared queue, because some drivers discard completions of
//! a destroyed queue pair.
//!
//! Successful unsignaled work has no completion. A last SEND is therefore posted after the move to
//! the error state. Its flush shows that all earlier work has ended.

use std::time::{Duration, Instant};

use cairn_rdma::{DisconnectReason, Event, Operation, QpId, SendWork, SgeList};

use crate::objects::QueuePair;

use super::VerbsEndpoint;
use super::qp::{Phase, Qp};
use super::work_id::WorkId;

/// Maximum time for which a close waits for the device's report that it uses no more receives.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

impl VerbsEndpoint {
    pub(super) fn begin_close(&mut self, id: QpId) {
        let Some(qp) = self.table.get_mut(id) else {
            return;
        };
        match qp.phase {
            Phase::Closing { .. } => {}
            Phase::Connecting(_) => self.finish(id),
            Phase::Accepted | Phase::Established => {
                // An error means that the peer disconnected first, or that the device is gone.
                if let Err(error) = qp.cm.disconnect() {
                    cairn_base::peer_detail!(%id, %error, "rdma_disconnect");
                }
                let failing = qp.pair.as_mut().map(QueuePair::fail);
                if let Some(Err(error)) = &failing {
                    cairn_base::peer_detail!(%id, %error, "moving a queue pair to its error state");
                }
                qp.phase = Phase::Closing {
                    deadline: Instant::now() + CLOSE_TIMEOUT,
                };
                self.settling.push(id);
                if let Some(Ok(())) = failing {
                    self.mark_the_end(id);
                }
            }
        }
    }

    fn mark_the_end(&mut self, id: QpId) {
        let Some(qp) = self.table.get_mut(id) else {
            return;
        };
        if self.removed || qp.ring.outstanding() == 0 || qp.ring.room() == 0 {
            return;
        }
        let mark = WorkId::send(id, qp.ring.next());
        let work = SendWork {
            id: 0,
            op: Operation::Send,
            sges: SgeList::EMPTY,
            signaled: true,
        };
        self.send_chain.clear();
        self.send_chain.push(&work, mark.raw(), false);
        // SAFETY: the work has no inline data.
        if let Err((_, error)) = unsafe { qp.post(&mut self.send_chain) } {
            cairn_base::peer_detail!(%id, %error, "marking the end of a send queue");
        }
    }

    pub(super) fn end_connection(&mut self, id: QpId, reason: DisconnectReason) {
        let Some(qp) = self.table.get_mut(id) else {
            return;
        };
        let alive = matches!(qp.phase, Phase::Accepted | Phase::Established);
        if alive && !qp.down {
            qp.down = true;
            self.push_event(Event::Disconnected { qp: id, reason });
        }
    }

    pub(super) fn receives_end(&mut self, id: QpId) {
        let round = self.staged.next_full_round();
        if let Some(qp) = self.table.get_mut(id) {
            qp.receives_end = Some(round);
        }
    }

    pub(super) fn settle(&mut self) {
        if self.settling.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut index = 0;
        while let Some(&id) = self.settling.get(index) {
            let Some(qp) = self.table.get(id) else {
                self.settling.swap_remove(index);
                continue;
            };
            let overdue = qp.phase.deadline().is_some_and(|deadline| deadline <= now);
            match &qp.phase {
                Phase::Connecting(attempt) if overdue => {
                    let reason = format!("no answer from {} in time", attempt.remote);
                    self.fail_connect(id, reason);
                }
                Phase::Closing { .. } if self.is_drained(qp, overdue) => self.finish(id),
                Phase::Closing { .. } if overdue => {
                    cairn_base::peer_detail!(%id, "a closed queue pair has not drained in time");
                    self.flush_the_rest(id);
                    index += 1;
                }
                _ => index += 1,
            }
        }
    }

    /// True if the queue pair can be destroyed. If `overdue` is set, the device's report about
    /// receives is not required.
    fn is_drained(&self, qp: &Qp, overdue: bool) -> bool {
        let receives = overdue
            || qp
                .receives_end
                .is_some_and(|round| self.staged.rounds() >= round);
        receives && qp.ring.outstanding() == 0 && !self.staged.has_flushed()
    }

    pub(super) fn flush_the_rest(&mut self, id: QpId) {
        let Some(qp) = self.table.get_mut(id) else {
            return;
        };
        while let Some(entry) = qp.ring.complete_oldest() {
            self.staged.flush_entry(id, entry);
        }
    }

    fn finish(&mut self, id: QpId) {
        self.settling.retain(|settling| *settling != id);
        if self.table.remove(id).is_some() {
            self.push_event(Event::Closed { qp: id });
        }
    }

    pub(super) fn fail_connect(&mut self, id: QpId, reason: String) {
        self.push_event(Event::ConnectFailed { qp: id, reason });
        self.finish(id);
    }
}
