use std::collections::VecDeque;
use std::sync::Arc;

use cairn_base::slab::Slab;
use cairn_base::wake::Wake;

use crate::connection::{Event, QpOptions};
use crate::error::FabricError;
use crate::provider::EndpointOptions;
use crate::work::{Completion, CompletionKind, Operation, QpId, RecvWork, SendWork, WorkStatus};

use super::network::QpAddress;
use super::posted::Posted;

const RNR_RETRY_FOR_EVER: u8 = 7;

pub(super) struct EndpointState {
    pub(super) device: u64,
    pub(super) domain: u64,
    pub(super) options: EndpointOptions,
    pub(super) receives: VecDeque<RecvWork>,
    pub(super) completions: VecDeque<Completion>,
    pub(super) events: VecDeque<Event>,
    pub(super) qps: Slab<Qp, u16>,
    pub(super) wake: Arc<Wake>,
    pub(super) armed: bool,
    pub(super) removed: bool,
    pub(super) posted: Posted,
}

pub(super) struct Qp {
    pub(super) phase: Phase,
    pub(super) peer: Option<QpAddress>,
    pub(super) send_work: usize,
    /// True if RNR retries are unlimited. Limited retries fail at once, because the loopback has no
    /// clock.
    pub(super) waits_for_receives: bool,
    pub(super) sends: VecDeque<SendWork>,
    pub(super) unpolled: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Connecting,
    Established,
    Broken,
    Closing,
    /// The owner has polled all completions, but not yet the event `Closed`.
    Closed,
}

impl EndpointState {
    pub(super) fn insert(&mut self, options: &QpOptions) -> Result<QpId, FabricError> {
        if self.qps.vacant().is_none() {
            return Err(FabricError::Limit {
                what: "queue pairs",
                limit: u64::from(self.options.queue_pairs),
            });
        }
        let key = self.qps.insert(Qp {
            phase: Phase::Connecting,
            peer: None,
            send_work: options.send_work as usize,
            waits_for_receives: options.rnr_retry_count == RNR_RETRY_FOR_EVER,
            sends: VecDeque::with_capacity(options.send_work as usize),
            unpolled: 0,
        });
        Ok(key.into())
    }

    pub(super) fn qp(&mut self, id: QpId) -> Option<&mut Qp> {
        self.qps.get_mut(id.into())
    }

    pub(super) fn flush(&mut self, id: QpId) {
        while let Some(work) = self.qp(id).and_then(|qp| qp.sends.pop_front()) {
            self.complete_send(id, &work, WorkStatus::Flushed, 0);
        }
    }

    pub(super) fn complete_send(
        &mut self,
        qp: QpId,
        work: &SendWork,
        status: WorkStatus,
        byte_len: u32,
    ) {
        let kind = match work.op {
            Operation::Send | Operation::SendWithInvalidate { .. } => CompletionKind::Send,
            Operation::Write(_) => CompletionKind::Write,
            Operation::Read(_) => CompletionKind::Read,
        };
        let id = work.id;
        self.complete(Completion {
            id,
            qp,
            kind,
            status,
            byte_len,
            invalidated_rkey: None,
        });
    }

    pub(super) fn complete(&mut self, completion: Completion) {
        assert!(
            self.completions.len() < self.options.completions as usize,
            "completion queue overrun: {} do not fit",
            self.options.completions
        );
        let qp = self
            .qp(completion.qp)
            .expect("work belongs to a queue pair");
        qp.unpolled += 1;
        self.completions.push_back(completion);
        self.ring();
    }

    pub(super) fn push_event(&mut self, event: Event) {
        self.events.push_back(event);
        self.ring();
    }

    pub(super) fn close_if_drained(&mut self, id: QpId) {
        let Some(qp) = self.qp(id) else { return };
        if qp.phase == Phase::Closing && qp.unpolled == 0 {
            qp.phase = Phase::Closed;
            self.push_event(Event::Closed { qp: id });
        }
    }

    pub(super) fn take_events(&mut self, out: &mut Vec<Event>) {
        for event in &self.events {
            if let Event::Closed { qp } = event {
                self.qps.remove((*qp).into());
            }
        }
        out.extend(self.events.drain(..));
    }

    pub(super) fn ring(&mut self) {
        if std::mem::take(&mut self.armed) {
            self.wake.wake();
        }
    }
}
