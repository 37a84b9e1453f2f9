//! Connect: makes a connection a queue of a controller.

use std::sync::Arc;

use cairn_base::address::Payer;
use cairn_base::log::{LogLine, Topic};
use cairn_base::peer_line;
use cairn_trouble as trouble;
use nvme_auth::Authenticated;
use nvme_proto::controller::{ConnectRequest, Refusal};
use nvme_proto::transfer::DataTransfer;
use nvme_proto::wire::fabrics::{ConnectData, ConnectResult};
use nvme_proto::wire::{FromZeros, IntoBytes, Nqn, Quoted, Status};

use super::auditing::claimed;
use crate::ending::{CALLER, Ending};
use crate::ids::QpairId;
use crate::marking::Shown;
use crate::metrics::QueueCounters;
use crate::qpair::{Association, Claimant, QueuePair};
use crate::reactor::Reactor;
use crate::reactor::ordering;
use crate::reactor::stages::{budget, gates, respond};
use crate::registry::{
    DISPLACED, Entry, Joined, Origin, PlaceId, QueueShared, RefusedFor, SubsystemShared,
};
use crate::request::{LastResponse, RequestId, Task};

impl Reactor {
    pub(in crate::reactor) fn begin_connect(&mut self, id: RequestId) {
        let request = &mut self.queues.requests[id];
        request.task = Task::Connect;
        // A connection permits one Connect (Base, 6.3): a second is refused even while the first
        // runs.
        if std::mem::replace(&mut self.queues.qpairs[request.qpair].connect_begun, true) {
            let refusal = Refusal::new(Status::COMMAND_SEQUENCE_ERROR);
            return self.refuse_connect(id, refusal, None);
        }
        // Capsules of the admin queue have no data (RDMA, 3.1).
        let admin = self.queues.qpairs[request.qpair].cm.qid.get() == 0;
        let in_capsule_bytes = if admin { 0 } else { request.in_capsule_bytes };
        match ConnectRequest::locate(&request.sqe, in_capsule_bytes) {
            Ok(transfer) => {
                request.transfer = transfer;
                let in_capsule = matches!(transfer, DataTransfer::InCapsule(_));
                request.buffer_bytes = (if in_capsule { 0 } else { transfer.length() }, 0);
                gates::acquire(&mut self.queues, &mut self.io, &self.time.now, id);
            }
            Err(refusal) => self.refuse_connect(id, refusal, None),
        }
    }

    pub(in crate::reactor) fn execute_connect(&mut self, id: RequestId) {
        let mut data = ConnectData::new_zeroed();
        let span = ordering::input_span(&self.queues, &self.io, id);
        self.io.ring.peek(span, data.as_mut_bytes());
        match self.connect(id, &data) {
            Ok(result) => self.answer_connect(id, result),
            Err(refusal) => self.refuse_connect(id, refusal, Some(&data)),
        }
    }

    fn connect(&mut self, id: RequestId, data: &ConnectData) -> Result<u64, Refusal> {
        let qpair = self.queues.requests[id].qpair;
        let request = ConnectRequest::parse(&self.queues.requests[id].sqe, data)?;
        let subsystem = self.control.registry.find(&request.subnqn);
        let subsystem = subsystem.ok_or_else(ConnectRequest::unknown_subsystem)?;
        let payer = self.queues.qpairs[qpair].place.payer();
        let entry = subsystem.connect(&request, &self.origin(qpair, payer))?;
        let queue = &mut self.queues.qpairs[qpair];
        queue.connected(request.sqsize + 1, request.flow_control);
        match entry {
            Entry::Joined(joined) => {
                let result = joined.0.completion.result;
                self.associate(qpair, subsystem, joined, None);
                Ok(result)
            }
            Entry::Claimed(claim, exchange) => {
                let claim = *claim;
                queue.claimant = Some(Box::new(Claimant {
                    subsystem,
                    claim,
                    host_nqn: request.hostnqn.to_string(),
                    exchange: Some(exchange),
                    computing_since: self.time.now.at,
                }));
                let required = ConnectResult(0).with_atr(true).0;
                Ok(u64::from(claim.cntlid()) | u64::from(required))
            }
        }
    }

    pub(in crate::reactor) fn join(
        &mut self,
        qpair: QpairId,
        proof: Authenticated,
    ) -> Result<(), Refusal> {
        let queue = &self.queues.qpairs[qpair];
        let claimant = queue.claimant.as_ref().expect("its host authenticates");
        let (subsystem, claim) = (Arc::clone(&claimant.subsystem), claimant.claim);
        // The host has proven its identity, so its address is charged, not its network.
        let payer = Payer::host(queue.peer.ip());
        let joined = subsystem.join(&claim, &self.origin(qpair, payer))?;
        self.queues.qpairs[qpair].claimant = None;
        self.associate(qpair, subsystem, joined, Some(proof));
        Ok(())
    }

    fn origin(&self, qpair: QpairId, payer: Payer) -> Origin<'_> {
        let queue = &self.queues.qpairs[qpair];
        Origin {
            address: self.control.address(qpair),
            cm: &queue.cm,
            local: queue.local.ip(),
            peer: queue.peer.ip(),
            payer,
            listener: &queue.listener,
        }
    }

    fn shown(&mut self, qpair: QpairId, host: Nqn, proof: Option<Authenticated>) -> QueueShared {
        let marked = self.settle_marking(qpair, host);
        let queue = &self.queues.qpairs[qpair];
        QueueShared {
            peer: queue.peer,
            local: queue.local,
            reactor: self.control.index,
            device: self.queues.port(queue.port).device().name().to_owned(),
            provider: queue.listener.provider,
            pkey: queue.listener.pkey,
            entries: queue.entries,
            marked,
            authenticated: proof,
            counters: QueueCounters::default(),
        }
    }

    fn associate(
        &mut self,
        qpair: QpairId,
        subsystem: Arc<SubsystemShared>,
        (connected, controller): Joined,
        proof: Option<Authenticated>,
    ) {
        let queue = Arc::new(self.shown(qpair, controller.host(), proof));
        let association = Association {
            subsystem,
            controller,
            qid: connected.qid,
            queue,
        };
        self.record_connect(&association, proof);
        let queue = &mut self.queues.qpairs[qpair];
        let Association {
            subsystem,
            controller,
            qid,
            queue: shown,
        } = &association;
        if let Some(line) = LogLine::about(Topic::Connection) {
            let marked = &shown.marked;
            peer_line!(
                info,
                line,
                host = controller.host_nqn(),
                address = %queue.peer,
                subsystem = subsystem.nqn(),
                cntlid = controller.cntlid(),
                qid,
                entries = queue.entries,
                reactor = self.control.index,
                tos = marked.tos,
                dscp = marked.dscp,
                sl = marked.sl,
                pcp = marked.pcp,
                hop_limit = marked.hop_limit,
                pkey = %queue.listener.pkey,
                "connected"
            );
        }
        if *qid == 0 {
            let refused = self.control.registry.refused();
            refused.forget(controller.host_nqn(), subsystem.nqn(), queue.local);
        }
        subsystem.show(controller.cntlid(), *qid, Arc::clone(shown));
        if !subsystem.is_discovery() {
            queue.place.associate();
        }
        let share = self.io.shares.join(controller.host_nqn(), qpair);
        queue.associated(association, share);
    }

    fn settle_marking(&mut self, qpair: QpairId, host: Nqn) -> Shown {
        let queue = &mut self.queues.qpairs[qpair];
        let marking = queue.policy.choose(Some(host.raw()));
        let Some(port) = &mut self.queues.ports[queue.port] else {
            return Shown::default();
        };
        if marking != queue.marking && port.endpoint().set_marking(queue.qp, marking) {
            queue.marking = marking;
        }
        Shown::of(port.endpoint().marked(queue.qp), queue.policy.priorities)
    }

    pub(in crate::reactor) fn displace(&mut self, place: PlaceId) {
        let is_it = |id: &QpairId| self.queues.qpairs[*id].place.id() == place;
        let Some(qpair) = self.queues.qpairs.ids().find(is_it) else {
            for admitted in budget::take_connections(&mut self.queues, Some(place)) {
                self.refuse_connection(admitted, DISPLACED);
            }
            return;
        };
        let queue = &self.queues.qpairs[qpair];
        let connects =
            queue.connect_begun && queue.association.is_none() && queue.claimant.is_none();
        if !queue.place.is_associated() && !connects {
            self.close(qpair, Ending::Fault(DISPLACED));
        }
    }

    pub(in crate::reactor) fn finish(&mut self, id: RequestId, status: Status, result: u64) {
        let Self {
            queues, io, time, ..
        } = self;
        respond::finish(queues, io, &time.now, id, status, result);
    }

    fn refuse_connect(&mut self, id: RequestId, refusal: Refusal, data: Option<&ConnectData>) {
        let request = &mut self.queues.requests[id];
        request.close_after = Some(LastResponse::RefusedConnect);
        let qpair = request.qpair;
        self.record_refused_connect(qpair, data, &refusal.status.to_string());
        let request = &self.queues.requests[id];
        let queue = &self.queues.qpairs[qpair];
        let code = refusal.status.code().bits();
        self.queues.counters.refused.add(code);
        if let (Some(data), Some(reason)) = (data, refused_for(&refusal))
            && let (Ok(host), Ok(subsystem)) =
                (Nqn::decode(&data.hostnqn), Nqn::decode(&data.subnqn))
        {
            let refused = self.control.registry.refused();
            let (peer, local) = (queue.peer.ip(), queue.local);
            refused.note((host, subsystem), reason, peer, local, self.time.now.at);
        }
        let limit = &mut self.control.peer_limit;
        let payer = queue.place.payer();
        if let Some(line) = limit.admit(Topic::Refused, payer, self.time.now.at) {
            report_refusal(line, queue, &refusal, data);
        }
        let completion = refusal.completion(request.cid());
        self.finish(id, completion.status, completion.result);
    }
}

fn refused_for(refusal: &Refusal) -> Option<RefusedFor> {
    if refusal.status.code() == Status::CONNECT_INVALID_HOST.code() {
        return Some(RefusedFor::Host);
    }
    (*refusal == ConnectRequest::unknown_subsystem()).then_some(RefusedFor::Subsystem)
}

fn report_refusal(line: LogLine, queue: &QueuePair, refusal: &Refusal, data: Option<&ConnectData>) {
    let qid = queue.qid();
    let (sct, sc) = (refusal.status.sct(), refusal.status.sc());
    let known = trouble::of_connect(sct, sc, refusal.result);
    let next = known.map(|known| known.next.command(CALLER, queue.peer.ip()));
    let Some(data) = data else {
        return peer_line!(
            warn,
            line,
            address = %queue.peer,
            qid,
            status = %refusal.status,
            parameter = refusal.result,
            next,
            "Connect refused"
        );
    };
    let (host, subsystem) = (claimed(&data.hostnqn), claimed(&data.subnqn));
    if refusal.status.code() == Status::CONNECT_INVALID_HOST.code() {
        return peer_line!(
            warn,
            line,
            address = %queue.peer,
            host,
            subsystem,
            qid,
            status = %refusal.status,
            admit = %Quoted(&host),
            next,
            "Connect refused: the subsystem does not permit this host"
        );
    }
    if *refusal == ConnectRequest::unknown_subsystem() {
        return peer_line!(
            warn,
            line,
            address = %queue.peer,
            listener = %queue.listener.address,
            host,
            subsystem,
            qid,
            status = %refusal.status,
            parameter = refusal.result,
            next,
            "Connect refused: this listener leads to no subsystem of that name"
        );
    }
    peer_line!(
        warn,
        line,
        address = %queue.peer,
        host,
        subsystem,
        qid,
        status = %refusal.status,
        parameter = refusal.result,
        next,
        "Connect refused"
    );
}
