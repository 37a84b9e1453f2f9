//! Abort and Cancel of commands that wait in the target or are at a disk.

use std::time::Duration;

use cairn_disk::BlockIo;
use nvme_proto::io::Cancel;
use nvme_proto::wire::Status;

use crate::ids::QpairId;
use crate::reactor::Reactor;
use crate::reactor::aborts::Abort;
use crate::reactor::io::Io;
use crate::reactor::ordering;
use crate::reactor::queues::Queues;
use crate::reactor::stages::{respond, throttle};
use crate::reactor::time::Now;
use crate::request::{Request, RequestId, Stage};
use crate::work_id::WorkKind;

/// Time limit for a disk to end an aborted command. Afterwards, the Abort reports that the command
/// was not aborted.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// Completes the command `cid`, or cancels it at its disk. Several commands may match: a
/// non-compliant host may reuse a CID.
pub(in crate::reactor) fn abort(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    qpair: QpairId,
    cid: u16,
    abort_cid: u16,
) {
    let Some(queue) = queues.qpairs.get(qpair) else {
        return;
    };
    let Some(association) = queue.association.clone() else {
        return;
    };
    let victims = Victims::new(queues, qpair, |request| request.cid() == cid);
    let found = take_waiting(queues, io, &victims);
    let abort = Abort {
        tag: 0,
        subsystem: association.subsystem,
        cntlid: association.controller.cntlid(),
        abort_cid,
        until: now.at + ABORT_TIMEOUT,
    };
    let at_disk = victims.in_backend(queues).next();
    if found.is_empty()
        && let Some(id) = at_disk
    {
        let request = &mut queues.requests[id];
        io.stop_block(request, id);
        let tag = request.work_id(id, WorkKind::Block);
        return io.aborts.add(Abort { tag, ..abort });
    }
    end(queues, io, now, &victims, &found);
    abort.answer(!found.is_empty());
}

impl Reactor {
    pub(in crate::reactor) fn cancel(&mut self, id: RequestId) {
        let Self {
            queues, io, time, ..
        } = self;
        let now = &time.now;
        let (request, qid) = (&queues.requests[id], queues.association(id).qid);
        let qpair = request.qpair;
        let cancel = match Cancel::parse(&request.sqe, qid) {
            Ok(cancel) => cancel,
            Err(status) => return respond::fail(queues, io, now, id, status),
        };
        let aborts = |request: &Request| cancel.aborts(request.cid(), request.sqe.nsid.get());
        let requests = &queues.requests;
        let named = requests.of_qpair(qpair).map(|other| &requests[other]);
        let named = named.filter(|other| cancel.cid == Some(other.cid()));
        let named: Vec<bool> = named.map(aborts).collect();
        if !named.is_empty() && !named.contains(&true) {
            let status = Status::INVALID_FIELD.with_dnr();
            return respond::fail(queues, io, now, id, status);
        }
        let victims = Victims::new(queues, qpair, aborts);
        let found = take_waiting(queues, io, &victims);
        let at_disk: Vec<RequestId> = victims.in_backend(queues).collect();
        for &id in &at_disk {
            let request = &mut queues.requests[id];
            io.stop_block(request, id).cancel();
        }
        let immediate = end(queues, io, now, &victims, &found);
        let result = Cancel::result(immediate, at_disk.len());
        respond::finish(queues, io, now, id, Status::SUCCESS, result);
    }
}

struct Victims<F> {
    qpair: QpairId,
    is_one: F,
    fused: Vec<RequestId>,
    /// Fused commands that are not aborted, because the device uses their pair's buffer, or soon
    /// will.
    fetching: Vec<RequestId>,
}

impl<F: Fn(&Request) -> bool> Victims<F> {
    fn new(queues: &Queues, qpair: QpairId, is_one: F) -> Self {
        let requests = &queues.requests;
        let fetches =
            |id: RequestId| matches!(requests[id].stage(), Stage::AwaitingRead | Stage::Reading);
        let pair_fetches =
            |&id: &RequestId| fetches(id) || requests[id].fused.partner().is_some_and(fetches);
        let fused = requests.of_qpair(qpair);
        let fused = fused.filter(|&id| requests[id].is_fused());
        let (fetching, fused): (Vec<_>, Vec<_>) = fused.partition(pair_fetches);
        let mut victims = Self {
            qpair,
            is_one,
            fused,
            fetching,
        };
        let is_one = &victims.is_one;
        victims.fused.retain(|&id| is_one(&requests[id]));
        victims
    }

    fn has(&self, request: &Request) -> bool {
        if request.qpair != self.qpair {
            return false;
        }
        match request.fused.partner() {
            Some(partner) if self.fetching.contains(&partner) => false,
            Some(partner) => (self.is_one)(request) || self.fused.contains(&partner),
            None => (self.is_one)(request),
        }
    }

    fn in_backend(&self, queues: &Queues) -> impl Iterator<Item = RequestId> {
        let requests = &queues.requests;
        requests.of_qpair(self.qpair).filter(move |&id| {
            let request = &requests[id];
            request.stage() == Stage::InBackend && self.has(request)
        })
    }
}

fn take_waiting<F: Fn(&Request) -> bool>(
    queues: &mut Queues,
    io: &mut Io,
    victims: &Victims<F>,
) -> Vec<RequestId> {
    let victim = |request: &Request| victims.has(request);
    let mut found = Vec::new();
    let mut take = |id| found.push(id);
    throttle::take_out(queues, io, victim, &mut take);
    let requests = &mut queues.requests;
    requests.take_out(&mut io.awaiting_buffer, victim, &mut take);
    io.shares.take_out(requests, victim, &mut take);
    let reads = &mut queues.qpairs[victims.qpair].awaiting_read;
    requests.take_out(reads, victim, &mut take);
    found.extend(take_from_backend(queues, io, victim));
    found
}

pub(super) fn take_from_backend(
    queues: &mut Queues,
    io: &mut Io,
    victim: impl Fn(&Request) -> bool,
) -> Vec<RequestId> {
    let mut found = Vec::new();
    io.retries
        .take_out(&mut queues.requests, &victim, |id| found.push(id));
    io.older
        .take_out(&mut queues.requests, &victim, |id| found.push(id));
    io.disks
        .take_waiting(&mut queues.requests, &victim, |id| found.push(id));
    found
}

fn end<F: Fn(&Request) -> bool>(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    victims: &Victims<F>,
    found: &[RequestId],
) -> usize {
    let mut ended = 0;
    for &id in found {
        ordering::leave_at(queues, io, id);
        let partner = queues.requests[id].fused.partner();
        let named = partner.filter(|partner| victims.fused.contains(partner));
        ended += 1 + usize::from(named.is_some() && victims.fused.contains(&id));
        let id = named.unwrap_or(id);
        respond::finish(queues, io, now, id, Status::ABORT_REQUESTED, 0);
    }
    ended
}

impl Io {
    pub(super) fn stop_block<'a>(
        &mut self,
        request: &'a mut Request,
        id: RequestId,
    ) -> &'a mut BlockIo {
        self.ring.cancel(request.work_id(id, WorkKind::Block));
        let block = request.block.as_mut();
        let block = block.expect("block I/O is planned");
        block.stop();
        block
    }
}
