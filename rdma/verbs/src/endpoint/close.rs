//! Closing of queue pairs.
//!
//! Normally, a queue pair is destroyed after three steps: its send work has completed, the device
//! has reported the end of its receives ("last WQE reached"), and the completion queue was then
//! polled until empty. Earlier destruction could lose receives of a shared queue, because some
//! drivers discard completions of a destroyed queue pair.
//!
//! If these steps take longer than [`CLOSE_TIMEOUT`], for example after a failed move to the error
//! state, the queue pair is destroyed early, and the completion queue is then polled until empty.
//!
//! A driver may flush receives without a report (bnxt_re, `bnxt_re_poll_err_rcqe`). If the queue
//! pair has its own receive queue, these receives can be posted again after its destruction. In a
//! shared queue, they cannot be identified, so the endpoint is replaced before many are missing.
//!
//! Successful unsignaled work has no completion. A SEND, the end mark, is therefore posted after
//! the move to the error state; its flush shows that all earlier work has ended.

use std::time::{Duration, Instant};

use cairn_rdma::{DisconnectReason, Event, Operation, QpId, SendWork, SgeList};

use crate::objects::Refusal;

use super::VerbsEndpoint;
use super::qp::{Phase, Qp};
use super::work_id::WorkId;

/// Maximum time from the close of a queue pair to its destruction.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Like [`CLOSE_TIMEOUT`], after an error event of the queue pair. bnxt_re sends this event instead
/// of the report on receives (`bnxt_re_handle_qp_async_event`).
const CLOSE_TIMEOUT_FAILED: Duration = Duration::from_millis(50);

impl VerbsEndpoint {
    pub(super) fn begin_close(&mut self, id: QpId) {
        self.stop_supply(id);
        let Some(qp) = self.table.get_mut(id) else {
            return;
        };
        match qp.phase {
            Phase::Closing { .. } => {}
            Phase::Connecting(_) => self.finish(id),
            Phase::Accepted | Phase::Established => {
                if let Err(error) = qp.cm.disconnect() {
                    cairn_base::peer_detail!(%id, %error, "rdma_disconnect");
                }
                let failing = qp.pair.as_mut().map(|pair| pair.queue_mut().fail());
                if let Some(Err(error)) = &failing {
                    cairn_base::peer_detail!(%id, %error, "moving a queue pair to its error state");
                }
                let timeout = match qp.failed {
                    true => CLOSE_TIMEOUT_FAILED,
                    false => CLOSE_TIMEOUT,
                };
                qp.phase = Phase::Closing {
                    deadline: Instant::now() + timeout,
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
        let outstanding = qp.outstanding();
        let Some(pair) = &mut qp.pair else {
            return;
        };
        if self.dead || outstanding == 0 || pair.room() == 0 {
            return;
        }
        let mark = WorkId::send(id, pair.mark());
        let work = SendWork {
            id: 0,
            op: Operation::Send,
            sges: SgeList::EMPTY,
            signaled: true,
        };
        self.send_chain.clear();
        self.send_chain.push(&work, mark.raw(), false);
        // SAFETY: the work has no inline data.
        if let Err(Refusal { error, .. }) = unsafe { pair.post(&mut self.send_chain) } {
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

    pub(super) fn failed(&mut self, id: QpId) {
        self.end_connection(id, DisconnectReason::Transport);
        if let Some(qp) = self.table.get_mut(id) {
            qp.failed = true;
            if let Phase::Closing { deadline } = &mut qp.phase {
                *deadline = (*deadline).min(Instant::now() + CLOSE_TIMEOUT_FAILED);
            }
        }
    }

    /// Stops all work of this endpoint, which its owner must then drop. Other endpoints of the
    /// device continue.
    #[cold]
    pub(super) fn break_endpoint(&mut self, reason: String) {
        if !std::mem::replace(&mut self.dead, true) {
            self.push_event(Event::EndpointBroken { reason });
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
                Phase::Closing { .. } if self.is_drained(id, qp) => self.finish(id),
                Phase::Closing { .. } if overdue && qp.pair.is_some() => {
                    self.destroy_early(id);
                    index += 1;
                }
                _ => index += 1,
            }
        }
    }

    fn destroy_early(&mut self, id: QpId) {
        let Some(pair) = self.table.take_pair(id) else {
            return;
        };
        cairn_base::peer_detail!(%id, "a closed queue pair has not drained in time");
        for entry in pair.destroy() {
            self.staged.flush_entry(id, entry);
        }
        let round = self.staged.next_full_round();
        let Some(qp) = self.table.get_mut(id) else {
            return;
        };
        if qp.receives_end.replace(round).is_none() {
            self.receive_may_be_missing();
        }
    }

    fn is_drained(&self, id: QpId, qp: &Qp) -> bool {
        qp.outstanding() == 0 && !self.staged.has_flushed() && self.receives_have_ended(id, qp)
    }

    fn finish(&mut self, id: QpId) {
        self.settling.retain(|settling| *settling != id);
        if self.table.remove(id).is_some() {
            self.reclaim(id);
            self.push_event(Event::Closed { qp: id });
        }
    }

    pub(super) fn fail_connect(&mut self, id: QpId, reason: String) {
        self.push_event(Event::ConnectFailed { qp: id, reason });
        self.finish(id);
    }
}
