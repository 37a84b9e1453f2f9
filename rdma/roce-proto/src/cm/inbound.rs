use crate::time::Instant;
use alloc::boxed::Box;
use core::net::{IpAddr, SocketAddr};

use cairn_rdma::{Marked, PKey};

use super::connection::{
    CmEvent, ConnId, Connection, ConnectionState, Path, QpTerms, RemoteQp, Request,
};
use super::waiting::Verdict;
use super::{
    DECISION_TIME, DEFAULT_HOP_LIMIT, FIRST_INTERVAL, MAX_CONNECTIONS, MAX_INTERVAL, Manager,
    rejection,
};
use crate::wire::aeth::timeout_of_code;
use crate::wire::cm::lap::STATUS_UNSUPPORTED;
use crate::wire::cm::sidr::STATUS_NO_SERVICE;
use crate::wire::cm::{
    Answered, Apr, CommIds, Drep, Dreq, IpCm, LongSend, Message, Mra, Rej, RejReason, Rep, Req,
    SidrRep, SidrReq, ip_cm, padded,
};
use crate::wire::grh::address_of;

impl Manager {
    /// Handles a datagram received on QP1.
    ///
    /// Answers outside of a connection use the datagram's `traffic_class`; REJs use the REQ's.
    pub fn handle_mad(&mut self, now: Instant, path: Path, traffic_class: u8, mad: &[u8]) {
        let marked = Marked {
            traffic_class,
            hop_limit: DEFAULT_HOP_LIMIT,
        };
        let Some((header, message)) = Message::parse(mad) else {
            return;
        };
        self.waiting.set_time(now);
        match message {
            Message::Req(req) => self.handle_req(now, path, header.transaction_id, &req),
            Message::Mra(mra) => self.handle_mra(now, path, &mra),
            Message::Rej(rej) => self.handle_rej(now, path, &rej),
            Message::Rep(rep) => self.handle_rep(path, &rep),
            Message::Rtu(rtu) => {
                if let Some(id) = self.find(path, rtu.ids) {
                    self.handle_rtu(now, id);
                }
            }
            Message::Dreq(dreq) => {
                self.handle_dreq(now, path, marked, header.transaction_id, &dreq);
            }
            Message::Drep(drep) => {
                let found = self.find(path, drep.ids);
                if let Some(id) = found.filter(|&id| self.state(id) == ConnectionState::DreqSent) {
                    self.time_wait(id, now);
                }
            }
            Message::Lap(lap) => {
                if let Some(id) = self.find(path, lap.ids) {
                    let answer = Message::Apr(Apr {
                        ids: answering(lap.ids),
                        info_len: 0,
                        status: STATUS_UNSUPPORTED,
                        info: padded(&[]),
                        private_data: padded(&[]),
                    });
                    let marked = self.connections[&id].marked;
                    self.reply(path, marked, header.transaction_id, &answer);
                }
            }
            Message::SidrReq(sidr) => {
                self.handle_sidr_req(path, marked, header.transaction_id, &sidr);
            }
            Message::Apr(_) | Message::SidrRep(_) => {}
        }
    }

    fn find(&self, path: Path, ids: CommIds) -> Option<u32> {
        let connection = self.connections.get(&ids.remote)?;
        let known = connection.path == path && connection.ids.remote == ids.local;
        known.then_some(ids.remote)
    }

    fn state(&self, id: u32) -> ConnectionState {
        self.connections[&id].state
    }

    /// Sends an answer once, or drops it if answers to unproven addresses exceed their rate limit.
    fn reply(&mut self, path: Path, marked: Marked, transaction_id: u64, message: &Message) {
        if !self.waiting.may_answer(path.remote) {
            return;
        }
        let mad = message.emit(transaction_id);
        self.transmits
            .push_back(super::Transmit { path, marked, mad });
    }

    fn handle_req(&mut self, now: Instant, path: Path, transaction_id: u64, req: &Req) {
        if let Some(&id) = self.by_peer.get(&(path.remote, req.local_comm_id)) {
            // The peer repeats its REQ until the consumer decides, or because the answer was lost
            // (IBTA 12.9.8.1).
            match self.state(id) {
                ConnectionState::RepSent => self.repeat(id, now),
                ConnectionState::Left => {
                    self.refuse(path, transaction_id, req, RejReason::Consumer);
                    self.forget(id);
                }
                ConnectionState::DreqSent | ConnectionState::TimeWait => {
                    self.refuse(path, transaction_id, req, RejReason::StaleConnection);
                }
                _ => {}
            }
            return;
        }
        if self.is_held(now, path.remote) {
            return;
        }
        let remote_qp = RemoteQp {
            address: path.remote,
            guid: req.local_ca_guid,
            qpn: req.local_qpn,
        };
        if let Some(&id) = self.by_qp.get(&remote_qp) {
            // A queue pair cannot be in two connections. If the request is genuine, the known
            // connection has ended (IBTA 12.9.8.3.1).
            self.refuse(path, transaction_id, req, RejReason::StaleConnection);
            if self.state(id) == ConnectionState::Established {
                self.question(id, now);
            }
            return;
        }
        let request = match read_request(path, req) {
            Ok(request) => request,
            Err(reason) => return self.refuse(path, transaction_id, req, reason),
        };
        let verdict = self.waiting.verdict(path.remote);
        if verdict == Verdict::Drop || self.connections.len() >= MAX_CONNECTIONS {
            // No answer is sent, because answers would double the traffic of a flood.
            self.dropped_requests += 1;
            return;
        }
        if let Verdict::Evict(id) = verdict {
            self.dropped_requests += 1;
            self.time_out(id);
        }
        let local = self.new_comm_id();
        let remote = req.local_comm_id;
        let connection = Connection {
            state: ConnectionState::ReqReceived,
            path,
            marked: requested_marking(req),
            ids: CommIds { local, remote },
            transaction_id,
            local_qpn: 0,
            long_send: request.terms.long_send,
            remote_qp: Some(remote_qp),
            last: None,
            deadline: Some(now + DECISION_TIME),
            interval: FIRST_INTERVAL,
            quiet: !self.waiting.knows(path.remote),
            gives_up_at: now,
            questioned_at: None,
        };
        self.connections.insert(local, connection);
        self.by_peer.insert((path.remote, remote), local);
        self.waiting.insert(local, path.remote);
        let id = ConnId(local);
        let request = Box::new(request);
        self.events.push_back(CmEvent::Request { id, request });
    }

    fn is_held(&mut self, now: Instant, address: IpAddr) -> bool {
        let is_held = self.wrong_keys.holds(now, address);
        self.held_requests += u64::from(is_held);
        is_held
    }

    fn handle_sidr_req(&mut self, path: Path, marked: Marked, transaction_id: u64, sidr: &SidrReq) {
        let answer = Message::SidrRep(SidrRep {
            request_id: sidr.request_id,
            status: STATUS_NO_SERVICE,
            info_len: 0,
            qpn: 0,
            service_id: sidr.service_id,
            qkey: 0,
            info: padded(&[]),
            private_data: padded(&[]),
        });
        self.reply(path, marked, transaction_id, &answer);
    }

    fn refuse(&mut self, path: Path, transaction_id: u64, req: &Req, reason: RejReason) {
        let ids = CommIds {
            local: 0,
            remote: req.local_comm_id,
        };
        let message = rejection(ids, Answered::Req, reason, &[], &[]);
        self.reply(path, requested_marking(req), transaction_id, &message);
    }

    fn handle_rep(&mut self, path: Path, rep: &Rep) {
        let id = rep.ids.remote;
        let Some(connection) = self.connections.get_mut(&id).filter(|c| c.path == path) else {
            return;
        };
        match connection.state {
            ConnectionState::ReqSent => {
                connection.state = ConnectionState::Established;
                connection.ids.remote = rep.ids.local;
                let remote_qp = RemoteQp {
                    address: path.remote,
                    guid: rep.local_ca_guid,
                    qpn: rep.local_qpn,
                };
                connection.remote_qp = Some(remote_qp);
                self.by_peer.insert((path.remote, rep.ids.local), id);
                self.by_qp.insert(remote_qp, id);
                let mut private_data = rep.private_data;
                // A REP agrees to an offer or less; without an offer, the bytes are the consumer's.
                let long_send = connection.long_send.and_then(|offered| {
                    LongSend::take(&mut private_data).filter(|agreed| *agreed <= offered)
                });
                self.events.push_back(CmEvent::Accepted {
                    id: ConnId(id),
                    terms: QpTerms {
                        qpn: rep.local_qpn,
                        starting_psn: rep.starting_psn,
                        responder_resources: rep.responder_resources,
                        initiator_depth: rep.initiator_depth,
                        rnr_retry_count: rep.rnr_retry_count,
                        long_send,
                    },
                    private_data,
                });
                self.confirm(id);
            }
            // The peer repeats its REP because the RTU was lost (IBTA 12.9.8.2).
            ConnectionState::Established if connection.ids.remote == rep.ids.local => {
                self.confirm(id);
            }
            _ => {}
        }
    }

    fn handle_rtu(&mut self, now: Instant, id: u32) {
        let connection = self.connections.get_mut(&id);
        let connection = connection.expect("callers have found it");
        let (state, peer) = (connection.state, connection.path.remote);
        if matches!(
            state,
            ConnectionState::RepSent | ConnectionState::Left | ConnectionState::Established
        ) {
            connection.quiet = false;
            self.waiting.prove(peer);
        }
        if state == ConnectionState::Left {
            self.opened(id);
            self.ask_to_disconnect(id, now);
        } else {
            self.received_packet(ConnId(id));
        }
    }

    fn handle_mra(&mut self, now: Instant, path: Path, mra: &Mra) {
        let Some(connection) = self.connections.get_mut(&mra.ids.remote) else {
            return;
        };
        let fits = match mra.answered {
            Answered::Req => connection.state == ConnectionState::ReqSent,
            Answered::Rep => connection.state == ConnectionState::RepSent,
            Answered::Other => false,
        };
        if fits && connection.path == path {
            let wait = timeout_of_code(mra.service_timeout) + MAX_INTERVAL;
            let until = (now + wait).min(connection.gives_up_at.max(now));
            connection.deadline = Some(until);
        }
    }

    fn handle_rej(&mut self, now: Instant, path: Path, rej: &Rej) {
        // A REJ that answers a REQ may lack the sender's id. A REJ that withdraws a REQ contains
        // only the sender's id.
        let own = self.by_peer.get(&(path.remote, rej.ids.local)).copied();
        let id = Some(rej.ids.remote).filter(|id| *id != 0).or(own);
        let Some(id) = id else { return };
        let Some(connection) = self.connections.get(&id).filter(|c| c.path == path) else {
            return;
        };
        let of_peer = connection.ids.remote == rej.ids.local;
        let names_ours = rej.ids.remote == id;
        let event = match connection.state {
            ConnectionState::ReqSent => CmEvent::Rejected {
                id: ConnId(id),
                reason: rej.reason,
                info: rej.info[0],
                private_data: rej.private_data,
            },
            ConnectionState::ReqReceived if of_peer => CmEvent::Withdrawn { id: ConnId(id) },
            // The REP contained the local id. A REJ without this id is forged, or the peer sent it
            // before the REP arrived.
            ConnectionState::RepSent if of_peer && !names_ours => return self.hurry(id, now),
            ConnectionState::RepSent if of_peer => CmEvent::TimedOut { id: ConnId(id) },
            ConnectionState::Left if of_peer => return self.forget(id),
            ConnectionState::Established if of_peer && !names_ours => {
                return self.question(id, now);
            }
            ConnectionState::Established if of_peer => {
                self.time_wait(id, now);
                self.events
                    .push_back(CmEvent::Disconnected { id: ConnId(id) });
                return;
            }
            _ => return,
        };
        self.forget(id);
        self.events.push_back(event);
    }

    fn handle_dreq(
        &mut self,
        now: Instant,
        path: Path,
        marked: Marked,
        transaction_id: u64,
        dreq: &Dreq,
    ) {
        let found = self.find(path, dreq.ids);
        let marked = found.map_or(marked, |id| self.connections[&id].marked);
        let ours = found.filter(|id| self.connections[id].local_qpn == dreq.remote_qpn);
        // A DREQ of an unknown connection is answered too, because the peer would repeat it (IBTA
        // 12.9.8.4).
        let answer = Message::Drep(Drep {
            ids: answering(dreq.ids),
            private_data: padded(&[]),
        });
        self.reply(path, marked, transaction_id, &answer);
        let Some(id) = ours else { return };
        match self.state(id) {
            ConnectionState::Established => {}
            ConnectionState::RepSent => self.opened(id),
            ConnectionState::Left => {
                self.opened(id);
                return self.time_wait(id, now);
            }
            ConnectionState::DreqSent => return self.time_wait(id, now),
            ConnectionState::ReqSent | ConnectionState::ReqReceived | ConnectionState::TimeWait => {
                return;
            }
        }
        self.time_wait(id, now);
        self.events
            .push_back(CmEvent::Disconnected { id: ConnId(id) });
    }
}

const PATH_MTU_4096: u8 = 5;

fn answering(ids: CommIds) -> CommIds {
    CommIds {
        local: ids.remote,
        remote: ids.local,
    }
}

fn requested_marking(req: &Req) -> Marked {
    Marked {
        traffic_class: req.primary.traffic_class,
        hop_limit: DEFAULT_HOP_LIMIT,
    }
}

fn read_request(path: Path, req: &Req) -> Result<Request, RejReason> {
    if req.transport_type != 0 {
        return Err(RejReason::InvalidTransportType);
    }
    let port = ip_cm::port_of(req.service_id).ok_or(RejReason::InvalidServiceId)?;
    let ip_cm = IpCm::read(&req.private_data).ok_or(RejReason::UnsupportedRequest)?;
    let honest = ip_cm.source.ip() == path.remote
        && address_of(req.primary.local_gid) == path.remote
        && ip_cm.destination == path.local;
    if !honest || !(1..=5).contains(&req.path_mtu) {
        return Err(RejReason::UnsupportedRequest);
    }
    let pkey = PKey::new(req.pkey).ok_or(RejReason::UnsupportedRequest)?;
    let mut private_data = padded(&req.private_data[ip_cm::LEN..]);
    let long_send = LongSend::take::<{ ip_cm::CONSUMER_LEN }>(&mut private_data);
    Ok(Request {
        path,
        local: SocketAddr::new(path.local, port),
        peer: ip_cm.source,
        terms: QpTerms {
            qpn: req.local_qpn,
            starting_psn: req.starting_psn,
            responder_resources: req.responder_resources,
            initiator_depth: req.initiator_depth,
            rnr_retry_count: req.rnr_retry_count,
            long_send: long_send.filter(|_| req.path_mtu == PATH_MTU_4096),
        },
        retry_count: req.retry_count,
        path_mtu: req.path_mtu,
        ack_timeout: req.primary.local_ack_timeout,
        pkey,
        traffic_class: req.primary.traffic_class,
        private_data,
    })
}
