pub(super) mod aborting;
mod accepting;
pub(super) mod late_round;
pub(super) mod overdue;
pub(super) mod slot_release;

use cairn_base::log::{LogLine, Topic};
use cairn_base::{peer_detail, peer_line};
use cairn_rdma::{DisconnectReason, Event, WorkStatus};
use cairn_trouble as trouble;

use super::Reactor;
use super::queues::Broken;
use super::stages::{budget, fetch, receive, respond, sent, throttle};
use crate::ending::Ending;
use crate::ids::QpairId;
use crate::qpair::QpairState;
use crate::registry::{ControlMessage, KEEP_ALIVE_EXPIRED};
use crate::request::{Request, RequestId, Stage};
use crate::work_id::{WorkId, WorkKind};

const SHUTTING_DOWN: &str = "the target is shutting down";

impl Reactor {
    pub(super) fn poll_events(&mut self, index: usize) -> bool {
        let Some(port) = &mut self.queues.ports[index] else {
            return false;
        };
        let mut events = std::mem::take(&mut self.control.events);
        port.endpoint().poll_events(&mut events);
        let busy = !events.is_empty();
        for event in events.drain(..) {
            self.connection_event(index, event);
        }
        self.control.events = events;
        busy
    }

    fn connection_event(&mut self, port: usize, event: Event) {
        if let Some(port) = &self.queues.ports[port] {
            port.counters().count_event(&event);
        }
        let find = |qp| {
            self.queues.ports[port]
                .as_ref()
                .and_then(|port| port.qpair(qp))
        };
        match event {
            Event::Established { qp, .. } => {
                peer_detail!(%qp, "established");
                if let Some(qpair) = find(qp) {
                    self.confirmed(qpair);
                }
            }
            Event::Rejected { qp, reason, .. } => {
                if let Some(qpair) = find(qp) {
                    self.close(qpair, Ending::Trouble(trouble::of_reject(reason)));
                }
            }
            Event::ConnectFailed { qp, reason } => {
                if let Some(qpair) = find(qp) {
                    peer_detail!(%qp, reason, "the host did not confirm its connection");
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
            Event::DeviceRemoved => {
                let device = self.close_port(port, "device removed", &trouble::DEVICE_REMOVED);
                if let Some(device) = device {
                    let _ = self
                        .control
                        .plane
                        .send(ControlMessage::DeviceRemoved { device });
                }
            }
            Event::EndpointBroken { reason } => {
                self.close_port(port, &reason, &trouble::DEVICE_FAULT);
            }
            Event::Notice { message } => {
                let device = self.queues.ports[port]
                    .as_ref()
                    .map(|port| port.device().name().to_owned());
                if let Some(line) = LogLine::about(Topic::Connection) {
                    peer_line!(info, line, device, message);
                }
            }
        }
    }

    pub(super) fn close(&mut self, qpair: QpairId, ending: Ending) {
        if matches!(ending, Ending::Work(..)) {
            self.report_if_unauthenticated(qpair);
        }
        match self.queues.qpairs[qpair].state {
            QpairState::Connecting { .. } | QpairState::Live => {
                self.explain_close(qpair, ending);
                self.let_go(qpair, true);
            }
            QpairState::Closing { explained: false } => {
                self.explain_close(qpair, ending);
                self.queues.qpairs[qpair].state = QpairState::Closing { explained: true };
            }
            QpairState::Closing { explained: true } | QpairState::Closed => {}
        }
    }

    pub(super) fn close_unexplained(&mut self, qpair: QpairId) {
        if self.queues.qpairs[qpair].is_open() {
            self.report_if_unauthenticated(qpair);
            self.let_go(qpair, false);
        }
    }

    fn explain_close(&mut self, qpair: QpairId, ending: Ending) {
        let queue = &self.queues.qpairs[qpair];
        let (host, subsystem) = (queue.host_nqn(), queue.subsystem_nqn());
        let (address, qid) = (queue.peer, queue.qid());
        if let Ending::Orderly(reason) = ending {
            self.record_disconnect(qpair, reason, true);
            self.queues.counters.ended_orderly.add(1);
            if let Some(line) = LogLine::about(Topic::Connection) {
                peer_line!(info, line, host, %address, subsystem, qid, reason, "disconnected");
            }
            return;
        }
        self.queues.counters.ended_by_fault.add(1);
        let reason = ending.fault(address.ip());
        self.record_disconnect(qpair, reason.as_deref().unwrap_or_default(), false);
        let limit = &mut self.control.peer_limit;
        let Some(line) = limit.admit(Topic::Fault, queue.place.payer(), self.time.now.at) else {
            return;
        };
        let reason = reason.as_deref();
        peer_line!(warn, line, host, %address, subsystem, qid, reason, "disconnected");
    }

    fn disconnected(&mut self, qpair: QpairId, reason: DisconnectReason) {
        if matches!(reason, DisconnectReason::Peer) {
            self.report_if_unauthenticated(qpair);
        }
        match reason {
            DisconnectReason::Peer => {
                self.close(qpair, Ending::Orderly("the host disconnected"));
            }
            // A failed work request explains the close better. Without one, `closed` reports that
            // the transport gave up.
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
            DisconnectReason::DeviceFault => {
                self.close(qpair, Ending::Trouble(&trouble::DEVICE_FAULT));
            }
        }
    }

    fn let_go(&mut self, qpair: QpairId, explained: bool) {
        let queue = &mut self.queues.qpairs[qpair];
        queue.state = QpairState::Closing { explained };
        let (port, qp) = (queue.port, queue.qp);
        if let Some(port) = &mut self.queues.ports[port] {
            port.endpoint().disconnect(qp);
        }
        self.drop_waiting(qpair);
        // Posted work requests complete with an error. Work requests in the outbox end here.
        let outbox = self.queues.qpairs[qpair].outbox.take();
        let work = outbox.iter().map(|work| WorkId::decode(work.id));
        self.queues.lost.extend(work);
        self.end_lost();
    }

    pub(super) fn end_lost(&mut self) {
        while let Some(work) = self.queues.lost.pop() {
            let Self {
                queues, io, time, ..
            } = self;
            let ended = match work.kind() {
                WorkKind::Read => {
                    fetch::read_ended(queues, io, &time.now, work, WorkStatus::Flushed).map(|_| ())
                }
                WorkKind::Send => {
                    sent::send_ended(queues, io, &time.now, work, WorkStatus::Flushed).map(|_| ())
                }
                WorkKind::LastRead => {
                    fetch::list_read_ended(queues, io, &time.now, work, WorkStatus::Flushed)
                        .map(|_| ())
                }
                WorkKind::LastWrite => {
                    respond::writes_ended(queues, io, &time.now, work, WorkStatus::Flushed)
                        .map(|_| ())
                }
                // Completed by later signaled work.
                WorkKind::Write | WorkKind::CoveredSend | WorkKind::CoveredRead => Ok(()),
                WorkKind::Receive | WorkKind::Block => unreachable!("not in an outbox"),
            };
            if let Err(broken) = ended {
                self.end_broken(broken);
            }
        }
    }

    pub(super) fn end_broken(&mut self, broken: Broken) {
        let Broken { qpair, ending } = broken;
        match ending {
            None => self.close_unexplained(qpair),
            Some(KEEP_ALIVE_EXPIRED) => self.expire(qpair),
            Some(ending) => self.close(qpair, ending),
        }
    }

    fn drop_waiting(&mut self, qpair: QpairId) {
        let Self { queues, io, .. } = self;
        let mut dropped: Vec<RequestId> = Vec::new();
        let mut take = |id| dropped.push(id);
        let of_qpair = |request: &Request| request.qpair == qpair;
        throttle::take_out(queues, io, of_qpair, &mut take);
        let requests = &mut queues.requests;
        for list in [
            &mut io.awaiting_buffer,
            &mut queues.commands,
            &mut queues.awaiting_census,
            &mut queues.awaiting_authentication,
        ] {
            requests.take_out(list, of_qpair, &mut take);
        }
        io.shares.take_out(requests, of_qpair, &mut take);
        let queue = &mut queues.qpairs[qpair];
        requests.take_out(&mut queue.awaiting_read, |_| true, &mut take);
        requests.take_out(&mut queue.awaiting_send, |_| true, &mut take);
        io.retries.take_out(requests, of_qpair, &mut take);
        io.older.take_out(requests, of_qpair, &mut take);
        io.disks.take_waiting(requests, of_qpair, &mut take);
        let port = queue.port;
        for id in dropped {
            sent::abandon(queues, io, id);
        }
        for id in queues.requests.of_qpair(qpair) {
            let request = &queues.requests[id];
            if request.stage() == Stage::InBackend {
                io.ring.take_back(request.work_id(id, WorkKind::Block));
            }
        }
        let mut slots = queues.capsule_queues.drop_of(qpair);
        slots.extend(budget::drop_of(queues, qpair));
        let first = queues.qpairs[qpair].pairing.take();
        slots.extend(first.and_then(|first| first.slot));
        for slot in slots {
            queues.repost(port, slot);
        }
        queues.late.retain(|(of, _)| *of != qpair);
    }

    fn closed(&mut self, qpair: QpairId) {
        self.close(qpair, Ending::Trouble(&trouble::TRANSPORT_GAVE_UP));
        let queue = &mut self.queues.qpairs[qpair];
        queue.state = QpairState::Closed;
        let (port, qp) = (queue.port, queue.qp);
        if let Some(port) = &mut self.queues.ports[port] {
            port.remove_qpair(qp);
        }
        self.retire_if_done(qpair);
    }

    pub(super) fn retire_if_done(&mut self, qpair: QpairId) {
        let queue = &self.queues.qpairs[qpair];
        if queue.state != QpairState::Closed || queue.requests > 0 {
            return;
        }
        let queue = self.queues.qpairs.remove(qpair);
        self.control.inbox.unload(queue.cm.qid.get());
        if let Some(share) = queue.share {
            self.io.shares.leave(share, qpair);
        }
        if let Some(association) = queue.association {
            let cntlid = association.controller.cntlid();
            association.subsystem.disconnected(cntlid, association.qid);
        }
        self.report_drained();
    }

    /// Drops an endpoint whose device was removed or whose queue failed, and its connections. The
    /// next connection opens another endpoint.
    fn close_port(
        &mut self,
        index: usize,
        reason: &str,
        ending: &'static trouble::Trouble,
    ) -> Option<u64> {
        let port = self.queues.ports[index].take()?;
        let device = port.device().id();
        // Logged when a device is removed or fails.
        tracing::warn!(
            device = port.device().name(),
            reactor = self.control.index,
            reason,
            "endpoint closed"
        );
        // Safe during I/O: the ring keeps the pages while backends use them.
        if let Err(error) = port.close(index, &mut self.io.ring) {
            // Logged when a device is removed.
            tracing::warn!(%error, "memory of a removed device stays registered");
        }
        self.io.disks.port_closed(index);
        let lost: Vec<QpairId> = self
            .queues
            .qpairs
            .ids()
            .filter(|&id| self.queues.qpairs[id].port == index)
            .collect();
        for qpair in lost {
            self.close(qpair, Ending::Trouble(ending));
            let with_device =
                |stage| matches!(stage, Stage::Reading | Stage::Writing | Stage::Sending);
            let requests: Vec<RequestId> = self
                .queues
                .requests
                .of_qpair(qpair)
                .filter(|&id| with_device(self.queues.requests[id].stage()))
                .collect();
            for id in requests {
                self.lose_request(id);
            }
            if self.queues.qpairs.get(qpair).is_some() {
                self.closed(qpair);
            }
        }
        Some(device)
    }

    fn lose_request(&mut self, id: RequestId) {
        let Self { queues, io, .. } = self;
        let command = queues.command(id);
        let work = command.request.send_work;
        command.free.give_back(work.into());
        if command.request.stage() == Stage::Sending {
            let _ = command.request.sent();
            sent::free(command, io);
        } else {
            let stage = command.request.stage();
            command.request.set_stage(stage, Stage::Running);
            sent::abandon(queues, io, id);
        }
    }

    pub(super) fn check_deadlines(&mut self) {
        let overdue: Vec<(QpairId, &'static str)> = self
            .queues
            .qpairs
            .ids()
            .filter_map(|id| Some((id, self.queues.qpairs[id].overdue(self.time.now.at)?)))
            .collect();
        for (qpair, reason) in overdue {
            self.report_if_unauthenticated(qpair);
            self.close(qpair, Ending::Fault(reason));
        }
        if self.queues.draining {
            self.close_idle_queues();
        }
        let Self {
            queues, io, time, ..
        } = self;
        let io_timeout = self.control.sizes.io_timeout;
        for (qpair, reason) in overdue::check_ages(queues, io, &time.now, io_timeout) {
            if self.queues.qpairs.get(qpair).is_some() {
                self.close(qpair, Ending::Fault(reason));
            }
        }
        let Self {
            queues, io, time, ..
        } = self;
        for capsule in slot_release::take_overdue(queues, io, &time.now) {
            receive::admit(queues, io, &time.now, capsule);
        }
        receive::end_unpaired(queues, io, &time.now);
        io.disks.end_exclusion(time.now.ns);
    }

    pub(super) fn drain(&mut self) {
        self.queues.draining = true;
        self.refuse_waiting();
        self.close_idle_queues();
        self.report_drained();
    }

    fn close_idle_queues(&mut self) {
        let idle: Vec<QpairId> = self
            .queues
            .qpairs
            .ids()
            .filter(|&id| self.queues.qpairs[id].requests == 0)
            .collect();
        for qpair in idle {
            self.close(qpair, Ending::Orderly(SHUTTING_DOWN));
        }
    }

    pub(super) fn stop(&mut self) {
        self.control.stopping = true;
        self.refuse_waiting();
        let all: Vec<QpairId> = self.queues.qpairs.ids().collect();
        for qpair in all {
            self.close(qpair, Ending::Orderly(SHUTTING_DOWN));
        }
    }

    fn refuse_waiting(&mut self) {
        for admitted in budget::take_connections(&mut self.queues, None) {
            self.refuse_connection(admitted, SHUTTING_DOWN);
        }
    }

    pub(super) fn report_drained(&self) {
        if self.queues.draining && self.queues.qpairs.len() == 0 {
            let _ = self.control.plane.send(ControlMessage::Drained);
        }
    }
}
