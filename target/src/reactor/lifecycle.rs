//! Queue pairs and devices come and go.

use std::net::SocketAddr;
use std::sync::Arc;

use cairn_fabric::trouble::{self, End};
use cairn_rdma::log::{Line, Topic};
use cairn_rdma::{Device, DisconnectReason, Event, QpOptions, peer_detail, peer_line};
use nvme_proto::wire::IntoBytes;
use nvme_proto::wire::cm::{RejectData, RejectStatus};

use super::Reactor;
use super::port::{PORTS_MAX, Port};
use crate::ending::Ending;
use crate::ids::QpairId;
use crate::qpair::{Accepted, QueuePair, State};
use crate::registry::{Admitted, ControlMessage};
use crate::request::{RequestId, Stage};
use crate::work_id::WorkKind;

/// Our RDMA READs outstanding on a queue pair: what adapters can do, mostly.
const READS_MAX: u8 = 16;

/// Why queues are closed at the end.
const SHUTTING_DOWN: Ending = Ending::Orderly("the target is shutting down");

impl Reactor {
    /// Takes on a connection, or refuses it.
    pub(super) fn accept(&mut self, admitted: Admitted) {
        let peer = admitted.request.peer;
        let qid = admitted.cm.qid.get();
        let device = Arc::clone(&admitted.request.device);
        let port = if self.draining {
            Err("the target is shutting down".to_owned())
        } else {
            self.port_for(&device, admitted.listener.provider)
        };
        let result = match port {
            Ok(port) => self.accept_on(port, admitted),
            Err(reason) => {
                let status = RejectStatus::NO_RESOURCES;
                self.counters.rejected.add(status.0);
                let reject = RejectData::new(status);
                admitted.request.reject(reject.as_bytes());
                Err(reason)
            }
        };
        if let Err(reason) = result {
            self.inbox.unload(qid);
            self.explain_refusal(peer, device.name(), &reason);
        }
    }

    /// The host is told "No Resources"; here is what is short.
    fn explain_refusal(&mut self, address: SocketAddr, device: &str, reason: &str) {
        let Some(line) = self
            .peer_limit
            .admit(Topic::Refused, address.ip(), self.now)
        else {
            return;
        };
        let told = trouble::of_nvme_reject(RejectStatus::NO_RESOURCES.0);
        let reason = format!("{reason}; {}", told.line(End::Target, address.ip()));
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
        let limits = *self.port(port).limits();
        // A READ, then WRITE and SEND, for each command the host may send; its
        // next may arrive before our SEND's completion does, and then waits.
        let send_work = (2 * u32::from(reply.crqsize.get())).min(limits.send_work);
        let reads = request
            .peer_responder_resources
            .min(limits.initiator_depth)
            .min(READS_MAX);
        let options = QpOptions {
            send_work,
            initiator_depth: reads,
            // No host READs from us.
            responder_resources: request.peer_initiator_depth.min(limits.responder_resources),
            traffic_class: marking.traffic_class,
            hop_limit: marking.hop_limit,
            // A host that posts no receives is given up by our own deadline.
            rnr_retry_count: 7,
            ..QpOptions::default()
        };
        let (peer, local) = (request.peer, request.local);
        let endpoint = self.ports[port]
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
        // If the process was stopped in the middle of this round, the round's time is long ago, and
        // the host would have no time left for its Connect.
        let now = self.clock.now().max(self.now);
        let id = self.qpairs.add(QueuePair::new(accepted, now));
        self.ports[port]
            .as_mut()
            .expect("the port was just found")
            .add_qpair(qp, id);
        self.port(port).counters().accepted();
        peer_detail!(address = %peer, qid = cm.qid.get(), send_work, reads, "accepted");
        Ok(())
    }

    /// The port of a device, opened now if this is the first connection there.
    fn port_for(
        &mut self,
        device: &Arc<dyn Device>,
        provider: &'static str,
    ) -> Result<usize, String> {
        let known = |port: &Option<Port>| {
            port.as_ref()
                .is_some_and(|port| port.device().id() == device.id())
        };
        if let Some(index) = self.ports.iter().position(known) {
            return Ok(index);
        }
        // A place whose old queue pairs are all forgotten.
        let in_use = |index| self.qpairs.ids().any(|id| self.qpairs[id].port == index);
        let index = (0..PORTS_MAX)
            .find(|&index| self.ports.get(index).is_none_or(Option::is_none) && !in_use(index))
            .ok_or_else(|| format!("a reactor serves at most {PORTS_MAX} devices"))?;
        let counters = self.counters.device(device.name(), provider);
        let arena = self.arena.mapping();
        let port = Port::open(device, arena, &mut self.ring, &self.sizes, counters)?;
        self.disks.port_opened(index, device);
        if self.ports.len() <= index {
            self.ports.resize_with(index + 1, || None);
        }
        self.ports[index] = Some(port);
        // Cause: the first connection of a device, or its removal.
        tracing::info!(
            device = device.name(),
            reactor = self.index,
            "device opened"
        );
        Ok(index)
    }

    /// A port that must be there.
    #[inline]
    pub(super) fn port(&self, index: usize) -> &Port {
        self.ports[index]
            .as_ref()
            .expect("an open queue pair has a port")
    }

    /// Takes a device's connection events.
    pub(super) fn poll_events(&mut self, index: usize) -> bool {
        let Some(port) = &mut self.ports[index] else {
            return false;
        };
        let mut events = std::mem::take(&mut self.events);
        port.endpoint().poll_events(&mut events);
        let busy = !events.is_empty();
        for event in events.drain(..) {
            self.connection_event(index, event);
        }
        self.events = events;
        busy
    }

    fn connection_event(&mut self, port: usize, event: Event) {
        if let Some(port) = &self.ports[port] {
            port.counters().heard(&event);
        }
        let find = |qp| self.ports[port].as_ref().and_then(|port| port.qpair(qp));
        match event {
            Event::Established { qp, .. } => {
                peer_detail!(?qp, "established");
            }
            Event::Rejected { qp, reason, .. } => {
                if let Some(qpair) = find(qp) {
                    self.close(qpair, Ending::Trouble(trouble::of_reject(reason)));
                }
            }
            Event::ConnectFailed { qp, reason } => {
                if let Some(qpair) = find(qp) {
                    peer_detail!(?qp, reason, "the host did not confirm its connection");
                    self.close(qpair, Ending::Trouble(&trouble::NO_ANSWER));
                }
            }
            Event::Disconnected { qp, reason } => {
                if let Some(qpair) = find(qp) {
                    self.disconnected(qpair, reason);
                }
            }
            Event::Closed { qp } => {
                if let Some(qpair) = find(qp) {
                    self.closed(qpair);
                }
            }
            Event::DeviceRemoved => self.device_removed(port),
            Event::Notice { message } => {
                let device = self.ports[port]
                    .as_ref()
                    .map(|port| port.device().name().to_owned());
                if let Some(line) = Line::about(Topic::Connection) {
                    peer_line!(info, line, device, message);
                }
            }
        }
    }

    /// Ends a queue, and tells why, once.
    pub(super) fn close(&mut self, qpair: QpairId, ending: Ending) {
        match self.qpairs[qpair].state {
            State::Connecting { .. } | State::Live => {
                self.explain_close(qpair, ending);
                self.let_go(qpair, true);
            }
            State::Closing { explained: false } => {
                self.explain_close(qpair, ending);
                self.qpairs[qpair].state = State::Closing { explained: true };
            }
            State::Closing { explained: true } | State::Closed => {}
        }
    }

    /// Ends a queue whose connection broke, for a reason that is yet to come.
    pub(super) fn close_unexplained(&mut self, qpair: QpairId) {
        if self.qpairs[qpair].is_open() {
            self.let_go(qpair, false);
        }
    }

    fn explain_close(&mut self, qpair: QpairId, ending: Ending) {
        let queue = &self.qpairs[qpair];
        let (host, subsystem) = (queue.host_nqn(), queue.subsystem_nqn());
        let (address, qid) = (queue.peer, queue.qid());
        if let Ending::Orderly(reason) = ending {
            self.counters.ended_orderly.add(1);
            if let Some(line) = Line::about(Topic::Connection) {
                peer_line!(info, line, host, %address, subsystem, qid, reason, "disconnected");
            }
            return;
        }
        self.counters.ended_by_fault.add(1);
        let Some(line) = self.peer_limit.admit(Topic::Fault, address.ip(), self.now) else {
            return;
        };
        let reason = ending.fault(address.ip());
        let reason = reason.as_deref();
        peer_line!(warn, line, host, %address, subsystem, qid, reason, "disconnected");
    }

    /// The connection ended, and this is all that its transport says.
    fn disconnected(&mut self, qpair: QpairId, reason: DisconnectReason) {
        match reason {
            DisconnectReason::Peer => {
                self.close(qpair, Ending::Orderly("the host disconnected"));
            }
            // The work that failed says more. If none does, `closed` speaks.
            DisconnectReason::Transport => self.close_unexplained(qpair),
            DisconnectReason::AddressChanged => {
                self.close(qpair, Ending::Trouble(&trouble::ADDRESS_CHANGED));
            }
            DisconnectReason::PeerMoved => {
                self.close(qpair, Ending::Trouble(&trouble::PEER_MOVED));
            }
            DisconnectReason::DeviceRemoved => {
                self.close(qpair, Ending::Trouble(&trouble::DEVICE_REMOVED));
            }
        }
    }

    /// Disconnects, and lets go of all that is not elsewhere.
    fn let_go(&mut self, qpair: QpairId, explained: bool) {
        let queue = &mut self.qpairs[qpair];
        queue.state = State::Closing { explained };
        let (port, qp) = (queue.port, queue.qp);
        if let Some(port) = &mut self.ports[port] {
            port.endpoint().disconnect(qp);
        }
        self.drop_waiting(qpair);
        // What was never posted ends here; what was posted comes back.
        let outbox = self.qpairs[qpair].outbox.take();
        self.lose_work(&outbox);
    }

    /// Ends what waits here for a queue that is closing.
    fn drop_waiting(&mut self, qpair: QpairId) {
        let mut dropped: Vec<RequestId> = Vec::new();
        let of_qpair = |request: &crate::request::Request| request.qpair == qpair;
        self.requests
            .take_out(&mut self.awaiting_buffer, of_qpair, |id| dropped.push(id));
        self.requests
            .take_out(&mut self.awaiting_predecessors, of_qpair, |id| {
                dropped.push(id);
            });
        self.shares
            .take_out(&mut self.requests, of_qpair, |id| dropped.push(id));
        let queue = &mut self.qpairs[qpair];
        self.requests
            .take_out(&mut queue.awaiting_read, |_| true, |id| dropped.push(id));
        self.requests
            .take_out(&mut queue.awaiting_send, |_| true, |id| dropped.push(id));
        self.take_retries(of_qpair, |id| dropped.push(id));
        self.disks
            .take_waiting(&mut self.requests, of_qpair, |id| dropped.push(id));
        for id in dropped {
            self.abandon(id);
        }
        for id in self.requests.of_qpair(qpair) {
            if self.requests[id].stage() == Stage::InBackend {
                self.ring
                    .take_back(self.requests.work_id(id, WorkKind::Block));
            }
        }
        let port = self.qpairs[qpair].port;
        for slot in self.lines.drop_of(qpair) {
            self.repost(port, slot);
        }
        self.late.retain(|(of, _)| *of != qpair);
    }

    /// The device has forgotten a queue pair: all its work has come back.
    fn closed(&mut self, qpair: QpairId) {
        self.close(qpair, Ending::Trouble(&trouble::TRANSPORT_GAVE_UP));
        let queue = &mut self.qpairs[qpair];
        queue.state = State::Closed;
        let (port, qp) = (queue.port, queue.qp);
        if let Some(port) = &mut self.ports[port] {
            port.remove_qpair(qp);
        }
        self.retire_if_done(qpair);
    }

    /// Forgets a queue of which nothing is left, and tells its subsystem.
    pub(super) fn retire_if_done(&mut self, qpair: QpairId) {
        let queue = &self.qpairs[qpair];
        if queue.state != State::Closed || queue.requests > 0 {
            return;
        }
        let queue = self.qpairs.remove(qpair);
        self.inbox.unload(queue.cm.qid.get());
        if let Some(share) = queue.share {
            self.shares.leave(share, qpair);
        }
        if let Some(association) = queue.association {
            let cntlid = association.controller.cntlid();
            association.subsystem.disconnected(cntlid, association.qid);
        }
        self.report_drained();
    }

    /// A device is gone, and with it all work that it had.
    fn device_removed(&mut self, index: usize) {
        let Some(port) = self.ports[index].take() else {
            return;
        };
        let device = port.device().id();
        // Cause: the first connection of a device, or its removal.
        tracing::warn!(
            device = port.device().name(),
            reactor = self.index,
            "device removed"
        );
        // What lay in its receive slots stays readable for requests in the backend:
        // the ring has the pages. But nobody posts the slots again.
        if let Err(error) = port.close(index, &mut self.ring) {
            // Cause: the removal of a device.
            tracing::warn!(%error, "memory of a removed device stays registered");
        }
        self.disks.port_closed(index);
        let lost: Vec<QpairId> = self
            .qpairs
            .ids()
            .filter(|&id| self.qpairs[id].port == index)
            .collect();
        for qpair in lost {
            self.close(qpair, Ending::Trouble(&trouble::DEVICE_REMOVED));
            let with_device = |stage| matches!(stage, Stage::Reading | Stage::Sending);
            let requests: Vec<RequestId> = self
                .requests
                .of_qpair(qpair)
                .filter(|&id| with_device(self.requests[id].stage()))
                .collect();
            for id in requests {
                self.lose_request(id);
            }
            if self.qpairs.get(qpair).is_some() {
                self.closed(qpair);
            }
        }
        let _ = self.control.send(ControlMessage::DeviceRemoved { device });
    }

    /// Ends a request whose work went away with its device.
    fn lose_request(&mut self, id: RequestId) {
        let stage = self.requests[id].stage();
        self.requests.set_stage(id, stage, Stage::Running);
        if stage == Stage::Sending {
            self.release_buffers(id);
            self.free(id);
        } else {
            self.abandon(id);
        }
    }

    /// Closes queues whose host has kept us waiting for too long.
    pub(super) fn check_deadlines(&mut self) {
        self.serve_connects();
        let overdue: Vec<(QpairId, &'static str)> = self
            .qpairs
            .ids()
            .filter_map(|id| Some((id, self.qpairs[id].overdue(self.now)?)))
            .collect();
        for (qpair, reason) in overdue {
            self.close(qpair, Ending::Fault(reason));
        }
        if self.draining {
            self.close_idle_queues();
        }
    }

    /// Takes no more commands, and closes queues as they have no more.
    pub(super) fn drain(&mut self) {
        self.draining = true;
        self.close_idle_queues();
        self.report_drained();
    }

    fn close_idle_queues(&mut self) {
        let idle: Vec<QpairId> = self
            .qpairs
            .ids()
            .filter(|&id| self.qpairs[id].requests == 0)
            .collect();
        for qpair in idle {
            self.close(qpair, SHUTTING_DOWN);
        }
    }

    /// Closes everything, whatever is in progress, and then ends.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
        let all: Vec<QpairId> = self.qpairs.ids().collect();
        for qpair in all {
            self.close(qpair, SHUTTING_DOWN);
        }
    }

    pub(super) fn report_drained(&self) {
        if self.draining && self.qpairs.len() == 0 {
            let _ = self.control.send(ControlMessage::Drained);
        }
    }
}
