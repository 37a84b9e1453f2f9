//! Census of a queue when its host begins another association ([`Arming`]): registers the queue's
//! pending changes in [`crate::order`].

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::reactor::Reactor;

use crate::ids::QpairId;
use crate::reactor::ordering;
use crate::registry::Arming;
use crate::request::{Request, RequestId, Stage};
use nvme_proto::wire::Status;

#[derive(Debug)]
pub(in crate::reactor) struct Census {
    qpair: QpairId,
    /// Capsules that arrived up to this time must be registered. `None` until the device was
    /// polled.
    until_ns: Option<u64>,
    arming: Arc<Arming>,
}

const POLLS_MAX: usize = 256;

impl Reactor {
    pub(in crate::reactor) fn begin_census(&mut self, qpair: QpairId, arming: Arc<Arming>) {
        self.control.censuses.push(Census {
            qpair,
            until_ns: None,
            arming,
        });
        self.time.next_check = self.time.now.at;
    }

    /// Polls the devices of new censuses: a missed capsule could execute after changes of the new
    /// association. Must not be called while completions are polled.
    pub(in crate::reactor) fn see_censuses(&mut self) -> bool {
        let new = self.control.censuses.len();
        let unseen = self.control.censuses.iter();
        let unseen = unseen.filter(|census| census.until_ns.is_none());
        let ports: BTreeSet<Option<usize>> = unseen
            .map(|census| Some(self.queues.qpairs.get(census.qpair)?.port))
            .collect();
        for port in ports.iter().copied().flatten() {
            self.drain_port(port);
        }
        for census in &mut self.control.censuses[..new] {
            census.until_ns.get_or_insert(self.time.now.ns);
        }
        !ports.is_empty()
    }

    pub(in crate::reactor) fn drain_port(&mut self, port: usize) {
        for _ in 0..POLLS_MAX {
            if !self.poll_port(port) && !self.has_more(port) {
                return;
            }
        }
    }

    fn has_more(&mut self, port: usize) -> bool {
        let port = self.queues.ports[port].as_mut();
        port.is_some_and(|port| port.endpoint().arm().unwrap_or(false))
    }

    pub(in crate::reactor) fn take_censuses(&mut self) {
        // Edited in place, so that a panic loses no census awaited by a Connect.
        let mut at = 0;
        while let Some(census) = self.control.censuses.get(at) {
            let (qpair, is_late) = (census.qpair, census.arming.is_late(self.time.now.ns));
            let Some(until_ns) = census.until_ns else {
                at += 1;
                continue;
            };
            self.enter_changes(qpair);
            if !is_late && self.queues.capsule_queues.seen_until(qpair, until_ns) {
                at += 1;
                continue;
            }
            self.control.censuses.swap_remove(at).arming.entered();
        }
    }

    fn enter_changes(&mut self, qpair: QpairId) {
        if self.queues.qpairs.get(qpair).is_none() {
            for orphans in &mut self.control.orphans {
                orphans.enter_changes(qpair);
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

    pub(in crate::reactor) fn answer_connect(&mut self, id: RequestId, result: u64) {
        if self.arming_of(id).is_none_or(Arming::is_done) {
            return self.finish(id, Status::SUCCESS, result);
        }
        self.queues.requests[id].completion.result = result;
        let waiting = &mut self.queues.awaiting_census;
        let requests = &mut self.queues.requests;
        requests.push_back(waiting, id, Stage::AwaitingCensus);
    }

    pub(in crate::reactor) fn serve_connects(&mut self) {
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
