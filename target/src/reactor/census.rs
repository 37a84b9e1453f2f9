//! Changes that queues have when a later association of their host begins: they are entered in the
//! order of their disks, and its Connect waits for that. See [`Arming`].

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Reactor, ordering};
use crate::ids::QpairId;
use crate::registry::Arming;
use crate::request::{Request, RequestId, Stage};
use nvme_proto::wire::Status;

/// A queue that has still to enter its changes.
#[derive(Debug)]
pub(super) struct Census {
    qpair: QpairId,
    /// Time up to which its capsules count. `None`: its device has still to be read.
    until_ns: Option<u64>,
    arming: Arc<Arming>,
}

/// How often a device is polled to see what waits in it. A queue of completions and the
/// buffer of a socket hold less than that many batches.
const POLLS_MAX: usize = 256;

impl Reactor {
    /// A later association of a queue's host begins.
    pub(super) fn begin_census(&mut self, qpair: QpairId, arming: Arc<Arming>) {
        self.control.censuses.push(Census {
            qpair,
            until_ns: None,
            arming,
        });
        // In this round: the Connect waits for it.
        self.time.next_check = self.time.now.at;
    }

    /// Reads the devices of queues that are to enter their changes; whether there were any. A capsule
    /// that was not taken yet would be entered after changes of the new association, and so be carried
    /// out after them. Not from within a poll: the Connect is one of its completions, and others
    /// wait behind that.
    pub(super) fn see_censuses(&mut self) -> bool {
        let new = self.control.censuses.len();
        let unseen = self.control.censuses.iter();
        let unseen = unseen.filter(|census| census.until_ns.is_none());
        let ports: BTreeSet<Option<usize>> = unseen
            .map(|census| Some(self.queues.qpairs.get(census.qpair)?.port))
            .collect();
        for port in ports.iter().copied().flatten() {
            self.drain_port(port);
        }
        // Queues that were added meanwhile have their own turn.
        for census in &mut self.control.censuses[..new] {
            census.until_ns.get_or_insert(self.time.now.ns);
        }
        !ports.is_empty()
    }

    /// Reads all that a device has.
    pub(super) fn drain_port(&mut self, port: usize) {
        for _ in 0..POLLS_MAX {
            if !self.poll_port(port) && !self.has_more(port) {
                return;
            }
        }
    }

    /// Whether a device that had no completions has something that may become one.
    fn has_more(&mut self, port: usize) -> bool {
        let port = self.queues.ports[port].as_mut();
        port.is_some_and(|port| port.endpoint().arm().unwrap_or(false))
    }

    /// Enters the changes of the queues whose devices were read.
    pub(super) fn take_censuses(&mut self) {
        // One by one, where they are: a panic must not lose those that others wait for.
        let mut at = 0;
        while let Some(census) = self.control.censuses.get(at) {
            let (qpair, is_late) = (census.qpair, census.arming.is_late(self.time.now.ns));
            let Some(until_ns) = census.until_ns else {
                at += 1;
                continue;
            };
            self.enter_changes(qpair);
            // Capsules that have no request yet cannot be entered.
            if !is_late && self.queues.lines.seen_until(qpair, until_ns) {
                at += 1;
                continue;
            }
            self.control.censuses.swap_remove(at).arming.entered();
        }
    }

    fn enter_changes(&mut self, qpair: QpairId) {
        if self.queues.qpairs.get(qpair).is_none() {
            for remains in &mut self.control.remains {
                remains.enter_changes(qpair);
            }
            return;
        }
        let requests: Vec<RequestId> = self.queues.requests.of_qpair(qpair).collect();
        if self.queues.qpairs[qpair].association.is_some() {
            for id in requests {
                ordering::enter_former(&mut self.queues, &self.io, id);
            }
        }
    }

    /// Answers a Connect that succeeded, or a step of an authentication: at once, unless that made a queue
    /// and older queues of its host have still to enter their changes.
    pub(super) fn answer_connect(&mut self, id: RequestId, result: u64) {
        // Queues of this reactor do so in its next look at messages.
        if self.arming_of(id).is_none_or(Arming::is_done) {
            return self.finish(id, Status::SUCCESS, result);
        }
        self.queues.requests[id].completion.result = result;
        let waiting = &mut self.queues.awaiting_census;
        let requests = &mut self.queues.requests;
        requests.push_back(waiting, id, Stage::AwaitingCensus);
    }

    /// Answers Connects that need not wait any more.
    pub(super) fn serve_connects(&mut self) {
        let mut over: Vec<RequestId> = Vec::new();
        let qpairs = &self.queues.qpairs;
        let is_over = |request: &Request| {
            let association = qpairs[request.qpair].association.as_ref();
            let arming = association.and_then(|own| own.controller.arming());
            arming.is_none_or(Arming::is_done)
        };
        let waiting = &mut self.queues.awaiting_census;
        let requests = &mut self.queues.requests;
        requests.take_out(waiting, is_over, |id| over.push(id));
        for id in over {
            let result = self.queues.requests[id].completion.result;
            self.finish(id, Status::SUCCESS, result);
        }
    }

    fn arming_of(&self, id: RequestId) -> Option<&Arming> {
        let queue = &self.queues.qpairs[self.queues.requests[id].qpair];
        queue.association.as_ref()?.controller.arming()
    }
}
