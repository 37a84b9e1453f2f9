use std::net::SocketAddr;

use nvme_auth::Authenticated;
use nvme_proto::wire::fabrics::ConnectData;

use crate::audit::Event;
use crate::ids::QpairId;
use crate::qpair::{Association, QueuePair};
use crate::reactor::Reactor;

impl Reactor {
    pub(in crate::reactor) fn record_connect(
        &self,
        association: &Association,
        proof: Option<Authenticated>,
    ) {
        self.control.audit.record(|| {
            let queue = &association.queue;
            let event = Event::new("connect")
                .of_peer(queue.peer)
                .cheap(is_discovery(association))
                .text("local", &queue.local.to_string())
                .text("provider", queue.provider)
                .text("device", &queue.device);
            let event = of_association(event, association);
            match proof {
                None => event.text("authentication", "none"),
                Some(proof) => with_proof(event, proof),
            }
        });
    }

    pub(in crate::reactor) fn record_reauthentication(&self, qpair: QpairId, proof: Authenticated) {
        self.control.audit.record(|| {
            let queue = &self.queues.qpairs[qpair];
            with_proof(of_queue(Event::new("reauthenticate"), queue), proof).cheap(true)
        });
    }

    pub(in crate::reactor) fn record_disconnect(
        &self,
        qpair: QpairId,
        reason: &str,
        orderly: bool,
    ) {
        let queue = &self.queues.qpairs[qpair];
        if queue.connect_begun && queue.subsystem().is_none() {
            return;
        }
        self.control.audit.record(|| {
            let event = of_queue(Event::new("disconnect"), queue);
            event.value("orderly", orderly).text("reason", reason)
        });
    }

    pub(in crate::reactor) fn record_refusal(
        &self,
        qpair: QpairId,
        at: &'static str,
        reason: &str,
    ) {
        self.control.audit.record(|| {
            let queue = &self.queues.qpairs[qpair];
            let event = of_queue(Event::new("refuse"), queue).cheap(true);
            event.text("at", at).text("reason", reason)
        });
    }

    pub(in crate::reactor) fn record_refused_connect(
        &self,
        qpair: QpairId,
        data: Option<&ConnectData>,
        reason: &str,
    ) {
        self.control.audit.record(|| {
            let queue = &self.queues.qpairs[qpair];
            let mut event = Event::new("refuse").of_peer(queue.peer).cheap(true);
            event = event.text("provider", queue.listener.provider);
            if let Some(data) = data {
                event = event
                    .text("host", &claimed(&data.hostnqn))
                    .text("hostid", &hex(&data.hostid))
                    .text("subsystem", &claimed(&data.subnqn));
            }
            let qid = queue.cm.qid.get();
            event
                .value("qid", qid)
                .text("at", "connect")
                .text("reason", reason)
        });
    }

    pub(in crate::reactor) fn record_refused_request(
        &self,
        peer: SocketAddr,
        provider: &'static str,
        reason: &str,
    ) {
        self.control.audit.record(|| {
            Event::new("refuse")
                .of_peer(peer)
                .cheap(true)
                .text("provider", provider)
                .text("at", "connection request")
                .text("reason", reason)
        });
    }
}

fn with_proof(event: Event, proof: Authenticated) -> Event {
    event
        .text("authentication", "dh-hmac-chap")
        .text("hash", &proof.hash.to_string())
        .text("group", &proof.group.to_string())
        .value("mutual", proof.mutual)
}

fn of_queue(event: Event, queue: &QueuePair) -> Event {
    let event = event
        .of_peer(queue.peer)
        .text("provider", queue.listener.provider);
    match (&queue.association, &queue.claimant) {
        // Peers can cause only discovery events cheaply: other associations require an allowed host
        // name.
        (Some(association), _) => {
            of_association(event.cheap(is_discovery(association)), association)
        }
        (None, Some(claimant)) => {
            let request = claimant.claim.request();
            event
                .cheap(true)
                .text("host", &claimant.host_nqn)
                .text("hostid", &hex(&request.hostid))
                .text("subsystem", claimant.subsystem.nqn())
                .value("qid", request.qid)
        }
        (None, None) => event.cheap(true).value("qid", queue.qid()),
    }
}

fn of_association(event: Event, association: &Association) -> Event {
    let Association {
        subsystem,
        controller,
        qid,
        ..
    } = association;
    let event = event
        .text("host", controller.host_nqn())
        .text("hostid", &hex(controller.hostid()))
        .text("subsystem", subsystem.nqn());
    // Each discovery connection has a new CNTLID, which would make all its events different.
    let cntlid = (!is_discovery(association)).then(|| controller.cntlid());
    event.value("cntlid", cntlid).value("qid", *qid)
}

fn is_discovery(association: &Association) -> bool {
    association.subsystem.is_discovery()
}

pub(in crate::reactor) fn claimed(name: &[u8]) -> String {
    let end = name.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&name[..end.unwrap_or(name.len())]).into_owned()
}

fn hex(hostid: &[u8; 16]) -> String {
    let digits: String = hostid.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostid_is_shown_as_a_uuid() {
        let id: [u8; 16] = std::array::from_fn(|at| at as u8 * 17);
        assert_eq!(hex(&id), "00112233-4455-6677-8899-aabbccddeeff");
    }
}
