use std::collections::VecDeque;
use std::sync::Arc;

use cairn_base::peer_detail;
use cairn_disk::Span;
use cairn_rdma::WorkStatus;
use nvme_proto::controller::Completion as CommandEnd;
use nvme_proto::transfer::DataTransfer;

use super::command::{Command, post_outbox};
use super::port::Port;
use super::queueing::capsule_queues::CapsuleQueues;
use super::queueing::payer_buckets::PayerBuckets;
use super::shares::Stock;
use crate::ending::Ending;
use crate::ids::QpairId;
use crate::metrics::{ReactorCounters, StageTimes};
use crate::qpair::Capsule;
use crate::qpair::{Association, Qpairs};
use crate::request::{List, RequestId, RequestTable, Stage};
use crate::work_id::{WorkId, WorkKind};

pub(super) struct Queues {
    /// `None` after a device's removal.
    pub(super) ports: Vec<Option<Port>>,
    pub(super) qpairs: Qpairs,
    pub(super) requests: RequestTable,
    /// Waiting capsules, at most one per queue entry.
    pub(super) capsule_queues: CapsuleQueues,
    pub(super) payer_buckets: PayerBuckets,
    /// Number of free requests from which no check of shares is required.
    pub(super) plenty: usize,
    pub(super) reserve: usize,
    pub(super) commands: List,
    /// Completions of parked commands that need a free request, bounded by the controllers' limits.
    pub(super) late: VecDeque<(QpairId, CommandEnd)>,
    /// Connects that wait until older queues of their host are registered in [`crate::order`].
    pub(super) awaiting_census: List,
    /// Commands at the authentication thread, at most one per queue pair.
    pub(super) awaiting_authentication: List,
    pub(super) dirty: Vec<QpairId>,
    /// Work requests rejected by a broken queue pair, until the end of the round.
    pub(super) lost: Vec<WorkId>,
    pub(super) ended: Vec<QpairId>,
    pub(super) draining: bool,
    pub(super) counters: Arc<ReactorCounters>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Broken {
    pub(super) qpair: QpairId,
    /// `None` if the connection's close event reports the reason.
    pub(super) ending: Option<Ending>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Limit,
    Share,
    Pool,
    Read,
    Send,
}

impl Queues {
    pub(super) fn new(requests: u32, reserve: usize, counters: Arc<ReactorCounters>) -> Self {
        Self {
            ports: Vec::new(),
            qpairs: Qpairs::new(),
            requests: RequestTable::new(requests),
            capsule_queues: CapsuleQueues::default(),
            payer_buckets: PayerBuckets::default(),
            plenty: Stock::plenty(requests as usize, reserve),
            reserve,
            commands: List::default(),
            late: VecDeque::new(),
            awaiting_census: List::default(),
            awaiting_authentication: List::default(),
            dirty: Vec::new(),
            lost: Vec::new(),
            ended: Vec::new(),
            draining: false,
            counters,
        }
    }

    #[inline]
    pub(super) fn port(&self, index: usize) -> &Port {
        self.ports[index]
            .as_ref()
            .expect("an open queue pair has a port")
    }

    #[inline]
    pub(super) fn repost(&mut self, port: usize, slot: u32) {
        if let Some(port) = &mut self.ports[port] {
            port.repost(slot);
        }
    }

    #[inline(always)]
    pub(super) fn command(&mut self, id: RequestId) -> Command<'_> {
        let (request, free) = self.requests.entry(id);
        Command {
            id,
            queue: &mut self.qpairs[request.qpair],
            request,
            ports: &mut self.ports,
            free,
            dirty: &mut self.dirty,
            lost: &mut self.lost,
            ended: &mut self.ended,
        }
    }

    #[inline(always)]
    pub(super) fn command_of(&mut self, work: WorkId) -> Command<'_> {
        let id = self.requests.find(work);
        self.command(id)
    }

    pub(super) fn capsule_span(&self, id: RequestId) -> Span {
        let request = &self.requests[id];
        let DataTransfer::InCapsule(slice) = request.transfer else {
            unreachable!("only in-capsule data lies in a capsule");
        };
        let slot = request
            .receive
            .expect("the slot is kept while its data is needed");
        let port = self.port(self.qpairs[request.qpair].port);
        port.slots().span(slot, slice.offset, slice.length)
    }

    pub(super) fn association(&self, id: RequestId) -> &Association {
        let association = self.qpairs[self.requests[id].qpair].association.as_ref();
        association.expect("an I/O queue is connected")
    }

    pub(super) fn count_wait(&self, id: RequestId, wait: Wait) {
        let association = self.qpairs[self.requests[id].qpair].association.as_ref();
        let queue = association.map(|association| &association.queue.counters);
        let (own, queues) = match wait {
            Wait::Limit => (&self.counters.limit_waits, queue.map(|q| &q.limit_waits)),
            Wait::Share => (&self.counters.share_waits, queue.map(|q| &q.share_waits)),
            Wait::Pool => (&self.counters.pool_waits, queue.map(|q| &q.pool_waits)),
            Wait::Read => (&self.counters.read_waits, None),
            Wait::Send => (&self.counters.send_waits, None),
        };
        own.add(1);
        if let Some(queues) = queues {
            queues.add(1);
        }
    }

    /// Posts receives first, because a host may send a command upon each response.
    pub(super) fn flush(&mut self) {
        for port in self.ports.iter_mut().flatten() {
            if port.flush_receives().is_err() {
                peer_detail!(
                    device = port.device().name(),
                    "receives refused: the queue pair is closing"
                );
            }
        }
        while let Some(qpair) = self.dirty.pop() {
            self.flush_outbox(qpair);
        }
    }

    fn flush_outbox(&mut self, qpair: QpairId) {
        if self.qpairs.get(qpair).is_none() {
            return;
        }
        let queue = &mut self.qpairs[qpair];
        if !queue.outbox.is_empty() {
            post_outbox(queue, self.ports[queue.port].as_mut(), &mut self.lost);
        }
    }

    pub(super) fn work_failed(&self, qpair: QpairId, kind: WorkKind, status: WorkStatus) -> Broken {
        if let Some(port) = &self.ports[self.qpairs[qpair].port] {
            port.counters().work_failed(status);
        }
        let ending = match status {
            // Another failure caused the flush.
            WorkStatus::Flushed => None,
            _ => Some(Ending::Work(kind, status)),
        };
        Broken { qpair, ending }
    }

    pub(super) fn take_on(&mut self, capsule: &Capsule) -> RequestId {
        let mut taken = self.requests.take();
        *taken.sqe() = capsule.sqe;
        let (id, request, _) = taken.begin(capsule.qpair);
        request.in_capsule_bytes = capsule.data_bytes;
        request.times = StageTimes::seen(capsule.seen_ns);
        let queue = &mut self.qpairs[capsule.qpair];
        queue.requests += 1;
        if capsule.is_data_dropped() {
            return id;
        }
        if capsule.data_bytes > 0 {
            request.receive = capsule.slot;
        } else if let Some(slot) = capsule.slot {
            let port = queue.port;
            self.repost(port, slot);
        }
        id
    }

    pub(super) fn execute_later(&mut self, id: RequestId) {
        let waiting = &mut self.commands;
        self.requests.push_back(waiting, id, Stage::AwaitingReactor);
    }
}
