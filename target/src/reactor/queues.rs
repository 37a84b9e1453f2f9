//! The queues of a reactor: its devices, their queue pairs, and the requests of these.

use std::collections::VecDeque;
use std::sync::Arc;

use cairn_disk::Span;
use cairn_rdma::{WorkStatus, peer_detail};
use nvme_proto::controller::Completion as CommandEnd;
use nvme_proto::transfer::DataTransfer;

use super::accounts::Accounts;
use super::command::{Command, post_outbox};
use super::lines::{Capsule, Lines};
use super::port::Port;
use super::shares::Stock;
use crate::ending::Ending;
use crate::ids::QpairId;
use crate::metrics::{ReactorCounters, StageTimes};
use crate::qpair::{Association, Qpairs};
use crate::request::{List, RequestId, RequestTable, Stage};
use crate::work_id::{WorkId, WorkKind};

/// What a reactor has of its hosts.
pub(super) struct Queues {
    /// By device; `None` where one was removed.
    pub(super) ports: Vec<Option<Port>>,
    pub(super) qpairs: Qpairs,
    pub(super) requests: RequestTable,
    /// Capsules that wait for a request. Not more than the queues have entries.
    pub(super) lines: Lines,
    /// What each address has taken of commands that are no I/O, and those that wait.
    pub(super) accounts: Accounts,
    /// While so many requests are free, every capsule may have one.
    pub(super) plenty: usize,
    /// Requests that only admin queues and Connects may use.
    pub(super) reserve: usize,
    /// Connects and admin commands that the reactor executes next.
    pub(super) commands: List,
    /// Completions of parked commands that wait for a request. Not more than the
    /// controllers' limit on parked commands.
    pub(super) late: VecDeque<(QpairId, CommandEnd)>,
    /// Connects that wait for older queues of their host to enter their changes.
    pub(super) awaiting_census: List,
    /// Authentication commands that another thread works on, at most one of a queue pair.
    pub(super) awaiting_authentication: List,
    /// Queue pairs with something in their outbox.
    pub(super) dirty: Vec<QpairId>,
    /// Work that a broken queue pair did not take. It ends at the end of the round.
    pub(super) lost: Vec<WorkId>,
    /// Closed queue pairs whose last request has ended. They go at the end of the round.
    pub(super) ended: Vec<QpairId>,
    /// Whether new commands are refused, because the target shuts down.
    pub(super) draining: bool,
    /// What the reactor counts.
    pub(super) counters: Arc<ReactorCounters>,
}

/// A queue pair that cannot go on: the reactor closes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Broken {
    pub(super) qpair: QpairId,
    /// Why. `None`: the connection's own event gives the reason.
    pub(super) ending: Option<Ending>,
}

/// What a command waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// Until limits allow it.
    Limit,
    /// Its host's share of the data buffers.
    Share,
    /// Data buffers.
    Pool,
    /// For another READ of its queue pair to end.
    Read,
    /// For other work of its queue pair to end.
    Send,
}

impl Queues {
    /// None as yet, with room for so many requests. Of these only admin queues and Connects
    /// may use `reserve`.
    pub(super) fn new(requests: u32, reserve: usize, counters: Arc<ReactorCounters>) -> Self {
        Self {
            ports: Vec::new(),
            qpairs: Qpairs::default(),
            requests: RequestTable::new(requests),
            lines: Lines::default(),
            accounts: Accounts::default(),
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

    /// A port that must be there.
    #[inline]
    pub(super) fn port(&self, index: usize) -> &Port {
        self.ports[index]
            .as_ref()
            .expect("an open queue pair has a port")
    }

    /// Posts a receive slot again at the end of the round.
    #[inline]
    pub(super) fn repost(&mut self, port: usize, slot: u32) {
        // A port that is gone takes its slots with it.
        if let Some(port) = &mut self.ports[port] {
            port.repost(slot);
        }
    }

    /// A running command, with what belongs to it.
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

    /// The command that a completion is about.
    #[inline(always)]
    pub(super) fn command_of(&mut self, work: WorkId) -> Command<'_> {
        let id = self.requests.find(work);
        self.command(id)
    }

    /// The in-capsule data of a request, where it landed.
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

    /// What the queue of an I/O command belongs to.
    pub(super) fn association(&self, id: RequestId) -> &Association {
        let association = self.qpairs[self.requests[id].qpair].association.as_ref();
        association.expect("an I/O queue is connected")
    }

    /// A command begins to wait.
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

    /// Posts what the round brought: receives before sends, so that a host that reads a
    /// response finds a receive for its next command.
    pub(super) fn flush(&mut self) {
        for port in self.ports.iter_mut().flatten() {
            if port.flush_receives().is_err() {
                peer_detail!(
                    device = port.device().name(),
                    "receives refused: it is going"
                );
            }
        }
        while let Some(qpair) = self.dirty.pop() {
            self.flush_outbox(qpair);
        }
    }

    /// Posts what a queue pair has in its outbox.
    fn flush_outbox(&mut self, qpair: QpairId) {
        if self.qpairs.get(qpair).is_none() {
            return;
        }
        let queue = &mut self.qpairs[qpair];
        if !queue.outbox.is_empty() {
            post_outbox(queue, self.ports[queue.port].as_mut(), &mut self.lost);
        }
    }

    /// Work on a queue pair failed, so it is broken.
    pub(super) fn work_failed(&self, qpair: QpairId, kind: WorkKind, status: WorkStatus) -> Broken {
        if let Some(port) = &self.ports[self.qpairs[qpair].port] {
            port.counters().work_failed(status);
        }
        let ending = match status {
            // Only a consequence: the connection's own event says why.
            WorkStatus::Flushed => None,
            _ => Some(Ending::Work(kind, status)),
        };
        Broken { qpair, ending }
    }

    /// Takes a request for a capsule that is in its slot no longer.
    pub(super) fn take_on(&mut self, capsule: &Capsule) -> RequestId {
        let mut taken = self.requests.take();
        *taken.sqe() = capsule.sqe;
        let (id, request, _) = taken.begin(capsule.qpair);
        request.in_capsule_bytes = capsule.data_bytes;
        request.times = StageTimes::seen(capsule.seen_ns);
        let queue = &mut self.qpairs[capsule.qpair];
        queue.requests += 1;
        if capsule.is_shed() {
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

    /// Has the reactor execute a command that is for no disk: it may lock, and allocate.
    pub(super) fn execute_later(&mut self, id: RequestId) {
        let waiting = &mut self.commands;
        self.requests.push_back(waiting, id, Stage::AwaitingReactor);
    }
}
