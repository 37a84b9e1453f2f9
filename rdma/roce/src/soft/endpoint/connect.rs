use cairn_roce_proto::time::Instant;
use std::net::{IpAddr, SocketAddr};

use cairn_base::ScopedAddr;
use cairn_rdma::{
    ConnRequest, ConnectOptions, Device, DisconnectReason, Event, FabricError, Marked, Marking,
    PrivateData, QpId, QpOptions,
};

use super::super::device::INDEX_SHIFT;
use super::super::listener::SoftRequest;
use super::super::manager::Acceptance;
use super::super::slots::{Entry, Phase};
use super::{Context, MAX_DEPTH, SoftEndpoint, admit, context};
use crate::phy::Version;
use crate::phy::batch::BatchPosition;
use crate::phy::interface::mtu_of_code;
use crate::phy::send::{ECN, Flow};
use crate::phy::send_sockets::{Destination, SendSocket};
use crate::phy::socket::source_for;
use cairn_roce_proto::cm::{CmEvent, Connect, DEFAULT_HOP_LIMIT, Path, QpTerms};
use cairn_roce_proto::qp::{Qp, QpConfig};
use cairn_roce_proto::wire::aeth::ack_timeout_of_code;
use cairn_roce_proto::wire::cm::{RejReason, long_send, padded};
use cairn_roce_proto::wire::udp::ROCE_PORT;

/// ACK timeout code in REQs: 0.54 s, as in Linux.
const ACK_TIMEOUT: u8 = 17;
/// Range to which finite ACK timeout codes of peers are limited: 67 ms to 4.3 s.
const ACK_TIMEOUTS: (u8, u8) = (14, 20);
const RNR_RETRY_FOR_EVER: u8 = 7;
/// ECN codepoint ECT(0) (RFC 3168, 5): routers may mark packets instead of dropping them.
const ECN_CAPABLE: u8 = 2;
/// Lowest local port in REQs.
const ACTIVE_PORTS: u16 = 0xc000;

impl SoftEndpoint {
    pub(super) fn accept_request(
        &mut self,
        request: ConnRequest,
        options: &QpOptions,
        private_data: &[u8],
    ) -> Result<QpId, FabricError> {
        let handle = request.handle.into_any().downcast::<SoftRequest>();
        let mut handle = handle.expect("a request goes to an endpoint of its own provider");
        assert_eq!(
            handle.device.id(),
            self.device.id(),
            "a request goes to an endpoint of its own device"
        );
        let request = &handle.request;
        let (id, qpn) = self.vacancy()?;
        let theirs = request.terms;
        let terms = QpTerms {
            responder_resources: options.responder_resources.min(theirs.initiator_depth),
            initiator_depth: options.initiator_depth.min(theirs.responder_resources),
            ..self.terms(qpn, request.path, options)
        };
        let marked = marked(options, request.traffic_class);
        let mut entry = Entry {
            phase: Phase::Accepted,
            conn: Some(handle.id),
            qpn,
            options: *options,
            terms,
            // The source address of a request may be forged, so queue pair and socket are created
            // later.
            flow: flow(SendSocket::UNDECIDED, request.path, marked),
            theirs: Some(theirs),
            send_socket: None,
            place: BatchPosition::default(),
            qp: None,
            queued: false,
            timer_at: None,
            connect_request: None,
            pkey: handle.listening.pkey,
            path_mtu: request.path_mtu,
            ack_timeout: accepted_timeout(request.ack_timeout),
        };
        let manager = &self.device.manager;
        let answer = Acceptance {
            terms: &terms,
            marked,
            private_data,
        };
        let accepted = manager.accept(handle.id, &answer, id, &self.inbox);
        handle.answered = true;
        entry.terms.long_send = accepted.map_err(|_| FabricError::Gone("peer"))?;
        self.slots.insert(id, entry);
        Ok(id)
    }

    pub(super) fn send_request(
        &mut self,
        options: &ConnectOptions,
        private_data: &[u8],
    ) -> Result<QpId, FabricError> {
        let remote = options.remote.ip();
        let local = self.local_for(options.remote, options.local)?;
        let path_mtu = self.device.path_mtu(local).map(|mtu| mtu.code);
        let path_mtu = path_mtu.map_err(|_| FabricError::NoDevice {
            address: local,
            remedy: "no network interface has it".to_owned(),
        })?;
        let (id, qpn) = self.vacancy()?;
        let path = Path { local, remote };
        let mut terms = self.terms(qpn, path, &options.qp);
        if private_data.len() > long_send::ROOM_IN_REQ {
            terms.long_send = None;
        }
        let marked = marked(&options.qp, 0);
        let flow = flow(SendSocket::UNDECIDED, path, marked);
        let connect_request = Connect {
            path,
            local_port: ACTIVE_PORTS | self.device.options.entropy.draw() as u16,
            remote_port: options.remote.port(),
            terms,
            retry_count: options.qp.retry_count,
            path_mtu,
            ack_timeout: ACK_TIMEOUT,
            pkey: options.pkey,
            marked,
            private_data: padded(private_data),
            timeout: options.timeout,
        };
        let conn = self
            .device
            .manager
            .connect(&connect_request, id, &self.inbox);
        self.slots.insert(
            id,
            Entry {
                phase: Phase::Connecting,
                conn: Some(conn),
                qpn,
                options: options.qp,
                terms,
                flow,
                theirs: None,
                send_socket: None,
                place: BatchPosition::default(),
                qp: None,
                queued: false,
                timer_at: None,
                pkey: options.pkey,
                path_mtu,
                ack_timeout: ACK_TIMEOUT,
                connect_request: Some(Box::new(connect_request)),
            },
        );
        Ok(id)
    }

    fn vacancy(&mut self) -> Result<(QpId, u32), FabricError> {
        let (inlet, mixed) = (&self.inlet, self.mixed.make_contiguous());
        self.slots
            .vacancy(|numbers| admit(inlet, numbers, mixed).map(drop))
    }

    fn local_for(&self, remote: SocketAddr, chosen: Option<IpAddr>) -> Result<IpAddr, FabricError> {
        let ours = self.device.address.ip();
        if !ours.is_unspecified() {
            return Ok(ours);
        }
        let found = chosen.map_or_else(|| source_for(remote).map(ScopedAddr::ip), Ok);
        found.map_err(|source| FabricError::Os {
            call: "looking up the route",
            source,
        })
    }

    fn terms(&self, qpn: u32, path: Path, options: &QpOptions) -> QpTerms {
        QpTerms {
            qpn,
            starting_psn: self.device.options.entropy.draw() as u32 & 0xff_ffff,
            responder_resources: options.responder_resources.min(MAX_DEPTH),
            initiator_depth: options.initiator_depth.min(MAX_DEPTH),
            rnr_retry_count: RNR_RETRY_FOR_EVER,
            long_send: self.device.long_send(path),
        }
    }

    fn send_socket(
        &mut self,
        remote: IpAddr,
        qpn: u32,
        class: u8,
    ) -> Result<SendSocket, FabricError> {
        let endpoint = qpn >> INDEX_SHIFT;
        let taken = self
            .send_sockets
            .take(Destination { remote, endpoint }, class);
        taken.map_err(|source| FabricError::Os {
            call: "opening a socket to send from",
            source,
        })
    }

    /// Creates the queue pair and its flow unless they exist.
    pub(super) fn begin(&mut self, id: QpId, now: Instant) -> Result<(), FabricError> {
        let entry = self.slots.get(id).expect("callers have looked it up");
        if entry.qp.is_some() {
            return Ok(());
        }
        let theirs = entry.theirs.expect("the peer has named its queue pair");
        let (remote, class) = (entry.flow.remote, entry.flow.traffic_class);
        let send_socket = self.send_socket(remote, theirs.qpn, class)?;
        let entry = self.slots.get(id).expect("callers have looked it up");
        entry.send_socket = Some(send_socket);
        entry.flow.fd = send_socket.fd;
        entry.flow.source_port = send_socket.flow;
        entry.flow.is_of_class = send_socket.is_of_class;
        let options = &entry.options;
        let config = QpConfig {
            dest_qpn: theirs.qpn,
            pkey: entry.pkey,
            mtu: mtu_of_code(entry.path_mtu),
            long_send: entry.terms.long_send,
            send_psn: theirs.starting_psn,
            receive_psn: entry.terms.starting_psn,
            send_work: options.send_work,
            initiator_depth: entry.terms.initiator_depth.min(theirs.responder_resources),
            responder_resources: entry.terms.responder_resources,
            retry_count: options.retry_count,
            rnr_retry_count: options.rnr_retry_count,
            min_rnr_timer: options.min_rnr_timer,
            ack_timeout: ack_timeout_of_code(entry.ack_timeout),
        };
        let mut qp = Qp::new(&config, now);
        let network = &self.device.options.network;
        // RoCE v1 packets have no congestion marks, so a genuine peer sends no notifications.
        if !self.device.options.congestion_control || network.version() == Version::V1 {
            qp.ignore_congestion();
        }
        entry.qp = Some(qp);
        Ok(())
    }

    pub(super) fn prove(&mut self, id: QpId, now: Instant) {
        self.complete(id, PrivateData::new(&[]), now);
    }

    fn complete(&mut self, id: QpId, private_data: PrivateData, now: Instant) {
        if let Err(error) = self.begin(id, now) {
            let reason = error.to_string();
            self.events
                .push_back(Event::ConnectFailed { qp: id, reason });
            return self.give_up(id);
        }
        let entry = self.slots.get(id).expect("it was just there");
        entry.phase = Phase::Established;
        entry.connect_request = None;
        self.establish(id, private_data);
    }

    pub(super) fn take_connection_events(&mut self, now: Instant) {
        while let Ok(received) = self.connection_events.try_recv() {
            let id = received.qp;
            let Some(entry) = self.slots.get(id) else {
                continue;
            };
            let Some(event) = received.event else {
                self.connection_lost(id);
                continue;
            };
            match (event, entry.phase) {
                (
                    CmEvent::Accepted {
                        terms,
                        private_data,
                        ..
                    },
                    Phase::Connecting,
                ) => {
                    entry.theirs = Some(terms);
                    entry.terms.long_send = terms.long_send;
                    self.complete(id, PrivateData::new(&private_data), now);
                }
                (CmEvent::Established { .. }, Phase::Accepted) => self.prove(id, now),
                (
                    CmEvent::Rejected {
                        reason,
                        info,
                        private_data,
                        ..
                    },
                    Phase::Connecting,
                ) => {
                    if reason == RejReason::InvalidPathMtu as u16
                        && self.retry_with_smaller_mtu(id, info)
                    {
                        continue;
                    }
                    let private_data = PrivateData::new(&private_data);
                    self.events.push_back(Event::Rejected {
                        qp: id,
                        private_data,
                        reason,
                    });
                    self.close(id);
                }
                (CmEvent::TimedOut { .. }, Phase::Connecting | Phase::Accepted) => {
                    let peer = entry.flow.remote;
                    let reason = match self.device.options.network.version() {
                        Version::V1 => format!(
                            "{peer} did not answer: check that it is up, that it speaks RoCE v1, \
                             and that it is on the same link, since no router passes RoCE v1 on"
                        ),
                        Version::V2 => format!(
                            "{peer} did not answer: check that it is up, that it speaks RoCE v2, \
                             and that UDP port {ROCE_PORT} is open both ways"
                        ),
                    };
                    self.events
                        .push_back(Event::ConnectFailed { qp: id, reason });
                    self.close(id);
                }
                (CmEvent::Disconnected { .. }, _) => self.disconnected.push(id),
                (CmEvent::Questioned { .. }, Phase::Established) => self.question(id, now),
                _ => {}
            }
        }
    }

    fn question(&mut self, id: QpId, now: Instant) {
        let entry = self.slots.get(id);
        if let Some(qp) = entry.and_then(|entry| entry.qp.as_mut()) {
            qp.question(now);
            self.make_ready(id);
        }
    }

    fn connection_lost(&mut self, id: QpId) {
        let Some(entry) = self.slots.get(id) else {
            return;
        };
        match entry.phase {
            Phase::Connecting | Phase::Accepted => {
                let reason = "connection management of this machine failed by a bug in Cairn, \
                              and has started again: connect again";
                let reason = reason.to_owned();
                self.events
                    .push_back(Event::ConnectFailed { qp: id, reason });
                self.close(id);
            }
            Phase::Established => self.disconnected.push(id),
            Phase::Broken | Phase::Closing => {}
        }
    }

    pub(super) fn end_disconnected(&mut self) {
        while let Some(id) = self.disconnected.pop() {
            let up = |phase| matches!(phase, Phase::Accepted | Phase::Established);
            let Some(entry) = self.slots.get(id).filter(|entry| up(entry.phase)) else {
                continue; // the owner has closed the connection, or has its event already
            };
            entry.phase = Phase::Broken;
            entry.conn = None;
            if let Some(qp) = &mut entry.qp {
                qp.flush(&mut context!(self, id));
            }
            let reason = DisconnectReason::Peer;
            self.events
                .push_back(Event::Disconnected { qp: id, reason });
        }
    }

    fn give_up(&mut self, id: QpId) {
        let entry = self.slots.get(id).expect("callers have looked it up");
        if let Some(conn) = entry.conn {
            self.device.manager.disconnect(conn);
        }
        self.close(id);
    }

    pub(super) fn flow_marked(&mut self, id: QpId) -> Option<Marked> {
        let flow = self.slots.get(id)?.flow;
        Some(Marked {
            traffic_class: flow.traffic_class & !ECN,
            hop_limit: flow.hop_limit,
        })
    }

    pub(super) fn set_flow_marking(&mut self, id: QpId, marking: Marking) -> bool {
        let Some(now) = self.flow_marked(id) else {
            return false;
        };
        let wanted = Marked {
            traffic_class: marking.traffic_class.unwrap_or(now.traffic_class),
            hop_limit: marking.hop_limit.unwrap_or(now.hop_limit),
        };
        let entry = self.slots.get(id).expect("it was just there");
        if let Some(send_socket) = &mut entry.send_socket {
            match self.send_sockets.retake(*send_socket, class_of(wanted)) {
                Ok(other) => *send_socket = other,
                Err(_) => return false,
            }
        }
        let send_socket = entry.send_socket.unwrap_or(SendSocket::UNDECIDED);
        let path = Path {
            local: entry.flow.local,
            remote: entry.flow.remote,
        };
        entry.flow = flow(send_socket, path, wanted);
        if let Some(conn) = entry.conn {
            self.device.manager.mark(conn, wanted);
        }
        true
    }

    fn establish(&mut self, id: QpId, private_data: PrivateData) {
        let entry = self.slots.get(id).expect("callers have looked it up");
        if let Some(qp) = &mut entry.qp {
            qp.release();
        }
        self.events.push_back(Event::Established {
            qp: id,
            private_data,
        });
        self.make_ready(id);
    }

    fn close(&mut self, id: QpId) {
        let entry = self.slots.get(id).expect("callers have looked it up");
        entry.phase = Phase::Closing;
        entry.conn = None;
        if let Some(qp) = &mut entry.qp {
            qp.flush(&mut context!(self, id));
        }
        self.close_if_drained(id);
    }

    fn retry_with_smaller_mtu(&mut self, id: QpId, path_mtu: u8) -> bool {
        let entry = self.slots.get(id).expect("callers have looked it up");
        let smaller = (1..entry.path_mtu).contains(&path_mtu);
        let Some(connect_request) = entry.connect_request.as_mut().filter(|_| smaller) else {
            return false;
        };
        connect_request.path_mtu = path_mtu;
        connect_request.terms.long_send = None;
        entry.path_mtu = path_mtu;
        entry.conn = Some(
            self.device
                .manager
                .connect(connect_request, id, &self.inbox),
        );
        true
    }
}

fn accepted_timeout(asked: u8) -> u8 {
    match asked {
        0 => 0,
        finite => finite.clamp(ACK_TIMEOUTS.0, ACK_TIMEOUTS.1),
    }
}

fn marked(options: &QpOptions, asked: u8) -> Marked {
    Marked {
        traffic_class: options.traffic_class.unwrap_or(asked),
        hop_limit: options.hop_limit.unwrap_or(DEFAULT_HOP_LIMIT),
    }
}

fn class_of(marked: Marked) -> u8 {
    marked.traffic_class & !ECN | ECN_CAPABLE
}

fn flow(send_socket: SendSocket, path: Path, marked: Marked) -> Flow {
    Flow {
        fd: send_socket.fd,
        source_port: send_socket.flow,
        local: path.local,
        remote: path.remote,
        traffic_class: class_of(marked),
        is_of_class: send_socket.is_of_class,
        hop_limit: marked.hop_limit,
    }
}
