//! Connection manager (IBTA chapter 12), active and passive side, as a state machine without I/O.
//!
//! The `poll_` methods return datagrams, events, and the time of the next call. A message about a
//! connection must come from the peer's address with a random communication id.

mod connection;
mod identity;
mod inbound;
mod penalties;
mod waiting;

pub use connection::{CmEvent, ConnId, Connect, Path, QpTerms, Request, Transmit};
pub use identity::{Draw, Identity};

use crate::time::Instant;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use cairn_rdma::Marked;
use connection::{Connection, ConnectionState, RemoteQp};
use penalties::Penalties;
use waiting::RequestBacklog;

use crate::wire::cm::{
    Answered, CommIds, Dreq, IpCm, LongSend, Message, Rej, RejReason, Rep, Req, Rtu, ip_cm,
    long_send, padded, rej, rep, req,
};
use crate::wire::grh::gid_of;
use crate::wire::mad::MAD_LEN;

const MAX_CONNECTIONS: usize = 65_536;

/// First interval between repetitions of a message, doubled up to [`MAX_INTERVAL`].
const FIRST_INTERVAL: Duration = Duration::from_millis(250);
/// Response timeout announced in REQs, and longest interval between repetitions.
const MAX_INTERVAL: Duration = Duration::from_micros(4_294_967);
/// Code of [`MAX_INTERVAL`] (4.096 us * 2^code), as in Linux.
const RESPONSE_TIMEOUT: u8 = 20;
const MAX_CM_RETRIES: u8 = 15;
const DECISION_TIME: Duration = Duration::from_secs(60);
/// Longest interval at which a timer repeats a REP to a proven address. Timers do not repeat REPs
/// to unproven addresses (see `waiting`).
const REP_INTERVAL_MAX: Duration = Duration::from_secs(1);
const CONFIRMATION_TIME: Duration = Duration::from_secs(20);
const DISCONNECT_TIME: Duration = Duration::from_secs(4);
/// Twice the packet lifetime assumed by Linux (code 16).
const TIME_WAIT: Duration = Duration::from_millis(540);
const QUESTION_INTERVAL: Duration = Duration::from_secs(1);
/// Code of the target ACK delay in REPs: 0.13 s.
const TARGET_ACK_DELAY: u8 = 15;
/// Failover Accepted field of REPs: not supported (IBTA 12.6.8.9).
const FAILOVER_UNSUPPORTED: u8 = 1;
/// Value of LID fields; Ethernet has no LIDs (annex A16.4).
const PERMISSIVE_LID: u16 = 0xffff;
/// Hop limit of messages outside of a connection.
pub const DEFAULT_HOP_LIMIT: u8 = 64;

/// Connection manager of one local address.
#[derive(Debug)]
pub struct Manager {
    identity: Identity,
    connections: BTreeMap<u32, Connection>,
    by_peer: BTreeMap<(IpAddr, u32), u32>,
    /// Confirmed connections, by the peer's queue pair. An unconfirmed connection is not listed,
    /// because a forged request could then block the peer's own request.
    by_qp: BTreeMap<RemoteQp, u32>,
    waiting: RequestBacklog,
    transmits: VecDeque<Transmit>,
    events: VecDeque<CmEvent>,
    dropped_requests: u64,
    wrong_keys: Penalties,
    held_requests: u64,
}

/// Error: the connection does not exist, or its state does not permit the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

impl Manager {
    /// Creates a manager without connections.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            connections: BTreeMap::new(),
            by_peer: BTreeMap::new(),
            by_qp: BTreeMap::new(),
            waiting: RequestBacklog::default(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            dropped_requests: 0,
            wrong_keys: Penalties::default(),
            held_requests: 0,
        }
    }

    /// Returns the number of connections in all states.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Returns [`cm_dropped_requests`](crate::counters::Counters::cm_dropped_requests).
    #[must_use]
    pub fn dropped_requests(&self) -> u64 {
        self.dropped_requests
    }

    /// Returns [`cm_held_requests`](crate::counters::Counters::cm_held_requests).
    #[must_use]
    pub fn held_requests(&self) -> u64 {
        self.held_requests
    }

    /// Penalizes the peer's address for a packet with a wrong memory key. Returns the address if
    /// its connection requests are ignored from now on.
    pub fn penalize(&mut self, now: Instant, id: ConnId) -> Option<IpAddr> {
        let address = self.connections.get(&id.0)?.path.remote;
        self.wrong_keys.penalize(now, address).then_some(address)
    }

    /// Sends a REQ. [`CmEvent::Accepted`], [`CmEvent::Rejected`] or [`CmEvent::TimedOut`] follows.
    pub fn connect(&mut self, now: Instant, options: &Connect) -> ConnId {
        let local = self.new_comm_id();
        let ids = CommIds { local, remote: 0 };
        let mut private_data = padded(&[]);
        let source = SocketAddr::new(options.path.local, options.local_port);
        let destination = options.path.remote;
        IpCm {
            source,
            destination,
        }
        .write(&mut private_data);
        private_data[ip_cm::LEN..].copy_from_slice(&options.private_data);
        let long_send = options.terms.long_send;
        let long_send = long_send.filter(|long| long.append(&mut private_data));
        let message = Message::Req(Req {
            local_comm_id: local,
            service_id: ip_cm::service_id(options.remote_port),
            local_ca_guid: self.identity.guid(),
            local_qkey: 0,
            local_qpn: options.terms.qpn,
            responder_resources: options.terms.responder_resources,
            initiator_depth: options.terms.initiator_depth,
            remote_response_timeout: RESPONSE_TIMEOUT,
            transport_type: 0,
            flow_control: true,
            starting_psn: options.terms.starting_psn,
            local_response_timeout: RESPONSE_TIMEOUT,
            retry_count: options.retry_count,
            pkey: options.pkey.bits(),
            path_mtu: options.path_mtu,
            rnr_retry_count: options.terms.rnr_retry_count,
            max_cm_retries: MAX_CM_RETRIES,
            srq: true,
            primary: req::Path {
                lids: [PERMISSIVE_LID; 2],
                local_gid: gid_of(options.path.local),
                remote_gid: gid_of(options.path.remote),
                flow_label: 0,
                rate: 0,
                traffic_class: options.marked.traffic_class,
                hop_limit: options.marked.hop_limit,
                sl: options.marked.traffic_class >> 5,
                subnet_local: true,
                local_ack_timeout: options.ack_timeout,
            },
            private_data,
        });
        let connection = Connection {
            state: ConnectionState::ReqSent,
            path: options.path,
            marked: options.marked,
            ids,
            transaction_id: self.identity.transaction_id(),
            local_qpn: options.terms.qpn,
            long_send,
            remote_qp: None,
            last: None,
            deadline: None,
            interval: FIRST_INTERVAL,
            quiet: false,
            gives_up_at: now + options.timeout,
            questioned_at: None,
        };
        self.connections.insert(local, connection);
        self.send(local, &message, Some(now));
        ConnId(local)
    }

    /// Sets traffic class and hop limit of a connection's further messages.
    pub fn mark(&mut self, id: ConnId, marked: Marked) {
        if let Some(connection) = self.connections.get_mut(&id.0) {
            connection.marked = marked;
        }
    }

    /// Sends a REP. [`CmEvent::Established`], [`CmEvent::TimedOut`] or [`CmEvent::Disconnected`]
    /// follows. Returns the agreed [`QpTerms::long_send`].
    pub fn accept(
        &mut self,
        now: Instant,
        id: ConnId,
        terms: &QpTerms,
        private_data: &[u8],
    ) -> Result<Option<LongSend>, Gone> {
        let guid = self.identity.guid();
        let connection = self.in_state(id, ConnectionState::ReqReceived)?;
        connection.state = ConnectionState::RepSent;
        connection.local_qpn = terms.qpn;
        connection.interval = FIRST_INTERVAL;
        connection.gives_up_at = now + CONFIRMATION_TIME;
        let is_short = private_data.len() <= rep::PRIVATE_LEN - long_send::LEN;
        let mut private_data = padded::<{ rep::PRIVATE_LEN }>(private_data);
        let both = terms.long_send.zip(connection.long_send);
        let agreed = both.map(|(own, other)| own.min(other));
        let agreed = agreed.filter(|long| is_short && long.append(&mut private_data));
        let message = Message::Rep(Rep {
            ids: connection.ids,
            local_qkey: 0,
            local_qpn: terms.qpn,
            starting_psn: terms.starting_psn,
            responder_resources: terms.responder_resources,
            initiator_depth: terms.initiator_depth,
            target_ack_delay: TARGET_ACK_DELAY,
            failover: FAILOVER_UNSUPPORTED,
            flow_control: true,
            rnr_retry_count: terms.rnr_retry_count,
            srq: true,
            local_ca_guid: guid,
            private_data,
        });
        self.send(id.0, &message, Some(now));
        self.waiting.answered(id.0);
        let connection = self.in_state(id, ConnectionState::RepSent)?;
        if connection.quiet {
            connection.deadline = Some(connection.gives_up_at);
        }
        Ok(agreed)
    }

    /// Drops a request without an answer, so that the peer repeats it.
    pub fn ignore(&mut self, id: ConnId) -> Result<(), Gone> {
        self.in_state(id, ConnectionState::ReqReceived)?;
        self.dropped_requests += 1;
        self.forget(id.0);
        Ok(())
    }

    /// Sends a REJ with additional reject information `info`. Beyond the rate limit of unproven
    /// addresses, acts as [`ignore`](Self::ignore).
    pub fn reject(
        &mut self,
        id: ConnId,
        reason: RejReason,
        info: &[u8],
        private_data: &[u8],
    ) -> Result<(), Gone> {
        let connection = self.in_state(id, ConnectionState::ReqReceived)?;
        let (ids, peer) = (connection.ids, connection.path.remote);
        if !self.waiting.may_answer(peer) {
            return self.ignore(id);
        }
        let message = rejection(ids, Answered::Req, reason, info, private_data);
        self.send(id.0, &message, None);
        self.forget(id.0);
        Ok(())
    }

    /// Reports that the queue pair has received a packet of its peer.
    ///
    /// The packet replaces a lost RTU (IBTA 12.9.7.1), but does not prove the peer's address,
    /// because queue pair numbers can be guessed.
    pub fn received_packet(&mut self, id: ConnId) {
        if let Ok(connection) = self.in_state(id, ConnectionState::RepSent) {
            connection.state = ConnectionState::Established;
            connection.deadline = None;
            connection.quiet = false;
            let remote_qp = connection.remote_qp;
            self.by_qp.extend(remote_qp.map(|qp| (qp, id.0)));
            self.opened(id.0);
            self.events.push_back(CmEvent::Established { id });
        }
    }

    /// Ends a connection in any state, without further events.
    pub fn disconnect(&mut self, now: Instant, id: ConnId) {
        let Some(connection) = self.connections.get_mut(&id.0) else {
            return;
        };
        let ids = connection.ids;
        match connection.state {
            ConnectionState::RepSent if connection.quiet => {
                connection.state = ConnectionState::Left;
            }
            ConnectionState::RepSent => {
                self.opened(id.0);
                self.ask_to_disconnect(id.0, now);
            }
            ConnectionState::Established => self.ask_to_disconnect(id.0, now),
            ConnectionState::ReqSent => {
                let message = rejection(ids, Answered::Other, RejReason::Timeout, &[], &[]);
                self.send(id.0, &message, None);
                self.forget(id.0);
            }
            ConnectionState::ReqReceived => {
                let message = rejection(ids, Answered::Req, RejReason::Consumer, &[], &[]);
                self.send(id.0, &message, None);
                self.forget(id.0);
            }
            ConnectionState::Left | ConnectionState::DreqSent | ConnectionState::TimeWait => {}
        }
    }

    /// Removes and returns the oldest message to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// Removes and returns the oldest event.
    pub fn poll_event(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }

    /// Returns the time of the next call of [`Manager::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.connections.values().filter_map(|c| c.deadline).min()
    }

    /// Repeats unanswered messages, and ends expired connections.
    pub fn handle_timeout(&mut self, now: Instant) {
        let due = self.connections.iter();
        let due: Vec<u32> = due
            .filter(|(_, c)| c.deadline.is_some_and(|deadline| deadline <= now))
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            let connection = self.connections.get_mut(&id).expect("it was just seen");
            if connection.state != ConnectionState::TimeWait && now < connection.gives_up_at {
                if connection.quiet {
                    connection.deadline = Some(connection.gives_up_at);
                } else {
                    self.repeat(id, now);
                }
                continue;
            }
            match connection.state {
                ConnectionState::ReqSent => {
                    let ids = connection.ids;
                    let message = rejection(ids, Answered::Other, RejReason::Timeout, &[], &[]);
                    self.send(id, &message, None);
                    self.forget(id);
                    self.events.push_back(CmEvent::TimedOut { id: ConnId(id) });
                }
                ConnectionState::RepSent if connection.quiet => self.time_out(id),
                ConnectionState::RepSent => {
                    let ids = connection.ids;
                    let message = rejection(ids, Answered::Rep, RejReason::Timeout, &[], &[]);
                    self.send(id, &message, None);
                    self.forget(id);
                    self.events.push_back(CmEvent::TimedOut { id: ConnId(id) });
                }
                ConnectionState::Left => self.forget(id),
                ConnectionState::ReqReceived => {
                    self.forget(id);
                    self.events.push_back(CmEvent::Withdrawn { id: ConnId(id) });
                }
                ConnectionState::DreqSent => self.time_wait(id, now),
                ConnectionState::TimeWait => self.forget(id),
                ConnectionState::Established => {
                    unreachable!("a connection that is up waits for nothing")
                }
            }
        }
    }
}

impl Manager {
    fn new_comm_id(&mut self) -> u32 {
        loop {
            let id = self.identity.comm_id();
            if !self.connections.contains_key(&id) {
                return id;
            }
        }
    }

    fn in_state(&mut self, id: ConnId, state: ConnectionState) -> Result<&mut Connection, Gone> {
        let connection = self.connections.get_mut(&id.0);
        connection.filter(|c| c.state == state).ok_or(Gone)
    }

    fn send(&mut self, id: u32, message: &Message, again: Option<Instant>) {
        let connection = self
            .connections
            .get_mut(&id)
            .expect("callers have looked it up");
        let mad = message.emit(connection.transaction_id);
        connection.last = Some(Box::new(mad));
        connection.deadline = again.map(|now| now + connection.interval);
        let (path, marked) = (connection.path, connection.marked);
        self.transmits.push_back(Transmit { path, marked, mad });
    }

    fn repeat(&mut self, id: u32, now: Instant) {
        let connection = self
            .connections
            .get_mut(&id)
            .expect("callers have looked it up");
        let last: Option<[u8; MAD_LEN]> = connection.last.as_deref().copied();
        if connection.deadline.is_some() && !connection.quiet {
            connection.interval = (connection.interval * 2).min(MAX_INTERVAL);
            let last = connection.gives_up_at.max(now);
            let is_enough = connection.state == ConnectionState::RepSent
                && connection.interval > REP_INTERVAL_MAX;
            let next = if is_enough {
                last
            } else {
                now + connection.interval
            };
            connection.deadline = Some(next.min(last));
        }
        let (path, marked) = (connection.path, connection.marked);
        self.transmits
            .extend(last.map(|mad| Transmit { path, marked, mad }));
    }

    fn confirm(&mut self, id: u32) {
        let connection = self
            .connections
            .get_mut(&id)
            .expect("callers have looked it up");
        let ids = connection.ids;
        let private_data = padded(&[]);
        self.send(id, &Message::Rtu(Rtu { ids, private_data }), None);
    }

    fn ask_to_disconnect(&mut self, id: u32, now: Instant) {
        let connection = self
            .connections
            .get_mut(&id)
            .expect("callers have looked it up");
        connection.state = ConnectionState::DreqSent;
        connection.interval = FIRST_INTERVAL;
        connection.gives_up_at = now + DISCONNECT_TIME;
        let message = Message::Dreq(Dreq {
            ids: connection.ids,
            remote_qpn: connection.remote_qp.map_or(0, |qp| qp.qpn),
            private_data: padded(&[]),
        });
        self.send(id, &message, Some(now));
    }

    fn opened(&mut self, id: u32) {
        self.waiting.remove(id);
    }

    /// Reports, at a limited rate, that the peer may have lost the connection.
    fn question(&mut self, id: u32, now: Instant) {
        let connection = self.connections.get_mut(&id);
        let connection = connection.expect("callers have looked it up");
        let recent = |at| now.saturating_duration_since(at) < QUESTION_INTERVAL;
        if !connection.questioned_at.is_some_and(recent) {
            connection.questioned_at = Some(now);
            let id = ConnId(id);
            self.events.push_back(CmEvent::Questioned { id });
        }
    }

    fn hurry(&mut self, id: u32, now: Instant) {
        self.repeat(id, now);
        let connection = self.connections.get_mut(&id);
        let connection = connection.expect("callers have looked it up");
        let until = connection.gives_up_at.min(now + QUESTION_INTERVAL);
        connection.gives_up_at = until;
        connection.deadline = Some(connection.deadline.unwrap_or(until).min(until));
    }

    /// Ends a connection without a message to the peer, whose address may be unproven.
    fn time_out(&mut self, id: u32) {
        self.forget(id);
        self.events.push_back(CmEvent::TimedOut { id: ConnId(id) });
    }

    fn time_wait(&mut self, id: u32, now: Instant) {
        let connection = self
            .connections
            .get_mut(&id)
            .expect("callers have looked it up");
        connection.state = ConnectionState::TimeWait;
        connection.deadline = Some(now + TIME_WAIT);
    }

    fn forget(&mut self, id: u32) {
        let state = self.connections[&id].state;
        if matches!(
            state,
            ConnectionState::ReqReceived | ConnectionState::RepSent | ConnectionState::Left
        ) {
            self.opened(id);
        }
        let connection = self.connections.remove(&id).expect("it was just looked at");
        let peer = (connection.path.remote, connection.ids.remote);
        if self.by_peer.get(&peer) == Some(&id) {
            self.by_peer.remove(&peer);
        }
        if let Some(qp) = connection.remote_qp
            && self.by_qp.get(&qp) == Some(&id)
        {
            self.by_qp.remove(&qp);
        }
    }
}

fn rejection(
    ids: CommIds,
    answered: Answered,
    reason: RejReason,
    info: &[u8],
    private_data: &[u8],
) -> Message {
    Message::Rej(Rej {
        ids,
        answered,
        info_len: info.len() as u8,
        reason: reason as u16,
        info: padded(info),
        private_data: padded::<{ rej::PRIVATE_LEN }>(private_data),
    })
}
