//! Receives of an endpoint, in one shared queue or in queues of the queue pairs.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use cairn_rdma::{
    Completion, CompletionKind, EndpointOptions, FabricError, PostError, QpId, QpOptions, RecvWork,
    WorkStatus,
};

use crate::chain::ReceiveChain;
use crate::device::VerbsDevice;
use crate::objects::{ProtectionDomain, QueuePair, Receives, Serial, SharedReceiveQueue};
use crate::receive_quotas::{Posting, ReceiveQuotas};
use crate::receives::ReceiveSlots;
use crate::sys::{self, inline};

use super::VerbsEndpoint;
use super::qp::Qp;
use super::work_id::WorkId;

pub(super) const RECEIVE_BATCH: usize = 64;

/// The endpoint is replaced when more than 1/`MISSING` of its shared receives may be lost.
const MISSING: u32 = 4;

pub(super) enum ReceiveQueues {
    Shared(Rc<SharedReceiveQueue>),
    ByQueuePair(ReceiveQuotas),
}

impl ReceiveQueues {
    pub(super) fn open(
        device: &VerbsDevice,
        domain: &Arc<ProtectionDomain>,
        options: &EndpointOptions,
        owner: Serial,
    ) -> Result<Self, FabricError> {
        if device.has_shared_receives()
            && let Some(queue) = SharedReceiveQueue::new(domain, options.receives, owner)?
        {
            return Ok(Self::Shared(Rc::new(queue)));
        }
        let quotas = ReceiveQuotas::new(options.receives, options.queue_pairs);
        Ok(Self::ByQueuePair(quotas))
    }

    pub(super) fn are_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    pub(super) fn of_pair(&self, quota: u32) -> Receives {
        match self {
            Self::Shared(queue) => Receives::Shared(Rc::clone(queue)),
            Self::ByQueuePair(_) => Receives::Own(quota),
        }
    }
}

impl VerbsEndpoint {
    pub(super) fn add_receives(&mut self, works: &[RecvWork]) -> Result<(), PostError> {
        let ReceiveQueues::ByQueuePair(quotas) = &mut self.receive_queues else {
            for batch in works.chunks(RECEIVE_BATCH) {
                self.post_shared(batch)?;
            }
            return Ok(());
        };
        for work in works {
            quotas.add(self.slots.insert(work), work.id);
        }
        self.hand_out();
        Ok(())
    }

    fn post_shared(&mut self, batch: &[RecvWork]) -> Result<(), PostError> {
        let ReceiveQueues::Shared(queue) = &self.receive_queues else {
            return Err(PostError::Broken);
        };
        let mut slots = [0; RECEIVE_BATCH];
        self.receive_chain.clear();
        for (work, slot) in batch.iter().zip(&mut slots) {
            *slot = self.slots.insert(work);
            self.receive_chain
                .push(work, WorkId::receive(Posting::shared(*slot)).raw());
        }
        let Err(refusal) = queue.post(&mut self.receive_chain) else {
            return Ok(());
        };
        for slot in &slots[refusal.taken..batch.len()] {
            self.slots.take(*slot);
        }
        self.break_endpoint(format!("ibv_post_srq_recv: {}", refusal.error));
        Err(PostError::Broken)
    }

    fn hand_out(&mut self) {
        while !self.dead
            && let ReceiveQueues::ByQueuePair(quotas) = &mut self.receive_queues
            && let Some((id, count)) = quotas.next()
        {
            let qp = self.table.get_mut(id);
            let Some(pair) = qp.and_then(|qp| qp.pair.as_mut()) else {
                quotas.stop(id);
                continue;
            };
            let (slots, chain) = (&self.slots, &mut self.receive_chain);
            let queue = pair.queue_mut();
            if let Err(error) = post_own(quotas, slots, chain, (id, queue), count) {
                self.report_refusal(id, "ibv_post_recv", &error);
            }
        }
    }

    pub(super) fn quota(&self, options: &QpOptions) -> u32 {
        options.receives.min(self.limits.send_work)
    }

    pub(super) fn supply(
        &mut self,
        id: QpId,
        queue: &mut QueuePair,
        options: &QpOptions,
    ) -> Result<(), FabricError> {
        let quota = self.quota(options);
        let ReceiveQueues::ByQueuePair(quotas) = &mut self.receive_queues else {
            return Ok(());
        };
        let count = quotas.open(id, quota);
        let (slots, chain) = (&self.slots, &mut self.receive_chain);
        post_own(quotas, slots, chain, (id, queue), count).map_err(FabricError::os("ibv_post_recv"))
    }

    pub(super) fn stop_supply(&mut self, id: QpId) {
        if let ReceiveQueues::ByQueuePair(quotas) = &mut self.receive_queues {
            quotas.stop(id);
        }
    }

    pub(super) fn reclaim(&mut self, id: QpId) {
        if let ReceiveQueues::ByQueuePair(quotas) = &mut self.receive_queues {
            quotas.close(id);
            self.hand_out();
        }
    }

    pub(super) fn receive_may_be_missing(&mut self) {
        if !self.device.loses_receives() || !self.receive_queues.are_shared() {
            return;
        }
        self.missing += 1;
        let limit = self.slots.limit() / MISSING;
        if self.missing > limit {
            self.break_endpoint(format!(
                "{limit} connections have ended without a report of their receives, which may be \
                 missing; the queues are opened again"
            ));
        }
    }

    pub(super) fn receives_have_ended(&self, id: QpId, qp: &Qp) -> bool {
        if let Some(round) = qp.receives_end {
            return self.staged.rounds() >= round;
        }
        match &self.receive_queues {
            ReceiveQueues::Shared(_) => false,
            ReceiveQueues::ByQueuePair(quotas) => quotas.posted(id) == 0,
        }
    }

    pub(super) fn received(
        &mut self,
        posting: Posting,
        wc: &sys::ibv_wc,
        status: WorkStatus,
    ) -> Option<Completion> {
        let slot = posting.slot;
        let (work, qp) = match &mut self.receive_queues {
            ReceiveQueues::Shared(_) => {
                let work = self.slots.take(slot)?;
                let Some(qp) = self.table.by_number(wc.qp_num) else {
                    // The queue pair is destroyed, so the receive is posted again. If this call
                    // fails, an event reports the error.
                    let _ = self.post_shared(&[work]);
                    return None;
                };
                (work, qp)
            }
            ReceiveQueues::ByQueuePair(quotas) if status == WorkStatus::Flushed => {
                let qp = quotas.flushed(posting)?;
                self.break_down(qp);
                return None;
            }
            ReceiveQueues::ByQueuePair(quotas) => {
                let qp = quotas.completed(posting, self.slots.get(slot)?.id)?;
                (self.slots.take(slot)?, qp)
            }
        };
        let success = status.is_success();
        Some(Completion {
            id: work.id,
            qp,
            kind: CompletionKind::Recv,
            status,
            byte_len: if success { wc.byte_len } else { 0 },
            invalidated_rkey: success.then(|| inline::invalidated_rkey(wc)).flatten(),
        })
    }
}

fn post_own(
    quotas: &mut ReceiveQuotas,
    slots: &ReceiveSlots,
    chain: &mut ReceiveChain,
    (id, queue): (QpId, &mut QueuePair),
    count: u32,
) -> io::Result<()> {
    let mut left = count as usize;
    while left > 0 {
        let mut batch = [0; RECEIVE_BATCH];
        let mut length = 0;
        chain.clear();
        while length < left.min(RECEIVE_BATCH)
            && let Some(posting) = quotas.take(id)
        {
            let work = slots
                .get(posting.slot)
                .expect("a spare receive has its work request");
            chain.push(work, WorkId::receive(posting).raw());
            batch[length] = posting.slot;
            length += 1;
        }
        if length == 0 {
            break;
        }
        left -= length;
        if let Err(refusal) = queue.post_receives(chain) {
            quotas.stop(id);
            for slot in &batch[refusal.taken..length] {
                quotas.refused(*slot);
            }
            return Err(refusal.error);
        }
    }
    quotas.note_need(id);
    Ok(())
}
