use std::net::SocketAddr;
use std::sync::Arc;

use cairn_base::address::Payer;
use cairn_base::log::Topic;
use cairn_base::{peer_detail, peer_line};
use cairn_rdma::{Device, QpOptions};
use cairn_trouble as trouble;
use nvme_proto::wire::IntoBytes;
use nvme_proto::wire::cm::{RejectData, RejectStatus, RequestData};

use super::SHUTTING_DOWN;
use crate::ending::CALLER;
use crate::qpair::{Accepted, QpairState, QueuePair};
use crate::reactor::Reactor;
use crate::reactor::port::{PORTS_MAX, Port};
use crate::registry::Admitted;

/// Maximum outstanding RDMA READs per queue pair; most adapters support 16.
const READS_MAX: u8 = 16;

impl Reactor {
    pub(in crate::reactor) fn accept(&mut self, admitted: Admitted) {
        let peer = admitted.request.peer;
        let qid = admitted.cm.qid.get();
        let device = Arc::clone(&admitted.request.device);
        let provider = admitted.listener.provider;
        let port = if self.queues.draining {
            Err(SHUTTING_DOWN.to_owned())
        } else {
            self.port_for(&device, provider)
        };
        let port = port.and_then(|port| {
            self.check_receives(port, &admitted)?;
            Ok(port)
        });
        let result = match port {
            Ok(port) => self.accept_on(port, admitted),
            Err(reason) => {
                self.reject(admitted);
                Err(reason)
            }
        };
        if let Err(reason) = result {
            self.control.inbox.unload(qid);
            self.record_refused_request(peer, provider, &reason);
            self.explain_refusal(peer, device.name(), &reason);
        }
    }

    /// Refuses a queue if its device has too few receives: without shared receive queues, each
    /// queue reserves a receive per entry. Queues from unknown addresses leave an eighth of the
    /// receives free.
    fn check_receives(&self, port: usize, admitted: &Admitted) -> Result<(), String> {
        let device = self.queues.port(port);
        if device.limits().shared_receives {
            return Ok(());
        }
        let qpairs = &self.queues.qpairs;
        let of_port = |id| {
            let queue = &qpairs[id];
            (queue.port == port && queue.state != QpairState::Closed).then_some(&queue.cm)
        };
        let reserved: u32 = qpairs.ids().filter_map(of_port).map(entries).sum();
        let (wanted, all) = (entries(&admitted.cm), device.slots().count());
        let kept = if admitted.place.is_known() {
            0
        } else {
            all / 8
        };
        if wanted <= all.saturating_sub(kept + reserved) {
            return Ok(());
        }
        Err(format!(
            "the device has no shared receive queue, so each queue reserves a receive for each of \
             its entries: this queue takes {wanted}, others hold {reserved} of {all}; raise \
             `receives`, or let hosts connect with fewer or shorter queues"
        ))
    }

    fn reject(&self, admitted: Admitted) {
        let status = RejectStatus::NO_RESOURCES;
        self.queues.counters.rejected.add(status.0);
        let reject = RejectData::new(status);
        admitted.request.reject(reject.as_bytes());
    }

    pub(in crate::reactor) fn refuse_connection(&mut self, admitted: Admitted, reason: &str) {
        let (peer, qid) = (admitted.request.peer, admitted.cm.qid.get());
        let (device, provider) = (
            Arc::clone(&admitted.request.device),
            admitted.listener.provider,
        );
        self.reject(admitted);
        self.control.inbox.unload(qid);
        self.record_refused_request(peer, provider, reason);
        self.explain_refusal(peer, device.name(), reason);
    }

    fn explain_refusal(&mut self, address: SocketAddr, device: &str, reason: &str) {
        let payer = Payer::stranger(address.ip());
        let limit = &mut self.control.peer_limit;
        let Some(line) = limit.admit(Topic::Refused, payer, self.time.now.at) else {
            return;
        };
        let known = trouble::of_nvme_reject(RejectStatus::NO_RESOURCES.0);
        let reason = format!("{reason}; {}", known.line(CALLER, address.ip()));
        peer_line!(warn, line, %address, device, reason, "connection refused");
    }

    fn accept_on(&mut self, port: usize, admitted: Admitted) -> Result<(), String> {
        let Admitted {
            request,
            cm,
            reply,
            marking,
            policy,
            listener,
            place,
        } = admitted;
        let limits = *self.queues.port(port).limits();
        // A command has at most two work requests at a time: a WRITE and a SEND.
        let send_work = (2 * u32::from(reply.crqsize.get())).min(limits.send_work);
        let reads = request
            .peer_responder_resources
            .min(limits.initiator_depth)
            .min(READS_MAX);
        let options = QpOptions {
            send_work,
            receives: entries(&cm),
            initiator_depth: reads,
            // Unused: hosts send no RDMA READs to a target.
            responder_resources: request.peer_initiator_depth.min(limits.responder_resources),
            traffic_class: marking.traffic_class,
            hop_limit: marking.hop_limit,
            // 7 means no limit. The target's deadline disconnects a host that posts no receives.
            rnr_retry_count: 7,
            ack_timeout: self.control.sizes.ack_timeout,
            ..QpOptions::default()
        };
        let (peer, local) = (request.peer, request.local);
        let endpoint = self.queues.ports[port]
            .as_mut()
            .expect("the port was just found")
            .endpoint();
        let qp = endpoint
            .accept(request, &options, reply.as_bytes())
            .map_err(|e| e.to_string())?;
        let accepted = Accepted {
            qp,
            port,
            peer,
            local,
            cm,
            marking,
            policy,
            send_work,
            reads: u32::from(reads),
            listener,
            place,
        };
        // After a suspension, the round's time may be so old that the Connect would be overdue at
        // once.
        let now = self.time.clock.now().max(self.time.now.at);
        let id = self.queues.qpairs.add(QueuePair::new(accepted, now));
        self.queues.ports[port]
            .as_mut()
            .expect("the port was just found")
            .add_qpair(qp, id);
        self.queues.port(port).counters().accepted();
        peer_detail!(address = %peer, qid = cm.qid.get(), send_work, reads, "accepted");
        Ok(())
    }

    fn port_for(
        &mut self,
        device: &Arc<dyn Device>,
        provider: &'static str,
    ) -> Result<usize, String> {
        let known = |port: &Option<Port>| {
            port.as_ref()
                .is_some_and(|port| port.device().id() == device.id())
        };
        if let Some(index) = self.queues.ports.iter().position(known) {
            return Ok(index);
        }
        let in_use = |index| {
            self.queues
                .qpairs
                .ids()
                .any(|id| self.queues.qpairs[id].port == index)
        };
        let index = (0..PORTS_MAX)
            .find(|&index| {
                self.queues.ports.get(index).is_none_or(Option::is_none) && !in_use(index)
            })
            .ok_or_else(|| format!("a reactor serves at most {PORTS_MAX} devices"))?;
        let counters = self.queues.counters.device(device.name(), provider);
        let arena = self.io.arena.mapping();
        let port = Port::open(
            device,
            arena,
            &mut self.io.ring,
            &self.control.sizes,
            counters,
        )?;
        self.io.disks.port_opened(index, device);
        let limits = *port.limits();
        if self.queues.ports.len() <= index {
            self.queues.ports.resize_with(index + 1, || None);
        }
        self.queues.ports[index] = Some(port);
        // Logged at the first connection or the removal of a device.
        tracing::info!(
            device = device.name(),
            reactor = self.control.index,
            shared_receives = limits.shared_receives,
            send_with_invalidate = limits.send_with_invalidate,
            "device opened"
        );
        Ok(index)
    }
}

fn entries(cm: &RequestData) -> u32 {
    u32::from(cm.hsqsize.get()) + 1
}
