//! The state of one connection, and what goes in and out.

use crate::time::Instant;
use alloc::boxed::Box;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use cairn_rdma::{Marked, PKey};

use crate::wire::cm::ip_cm::CONSUMER_LEN;
use crate::wire::cm::{CommIds, rej, rep};
use crate::wire::mad::MAD_LEN;

/// A connection's name: its local communication id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnId(pub(super) u32);

/// Between which addresses messages travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// Ours.
    pub local: IpAddr,
    /// The peer's.
    pub remote: IpAddr,
}

/// A queue pair's part of a connection message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpTerms {
    /// Its number.
    pub qpn: u32,
    /// The PSN that it expects first.
    pub starting_psn: u32,
    /// READs and atomics that it answers at a time.
    pub responder_resources: u8,
    /// READs and atomics that it sends at a time.
    pub initiator_depth: u8,
    /// How often the other end retries when there is no receive.
    pub rnr_retry_count: u8,
}

/// What a connection request contains.
#[derive(Debug, Clone)]
pub struct Connect {
    /// Addresses.
    pub path: Path,
    /// Our port, as the request names it.
    pub local_port: u16,
    /// Port of the peer's listener.
    pub remote_port: u16,
    /// Our queue pair.
    pub terms: QpTerms,
    /// How often the other end retries.
    pub retry_count: u8,
    /// Path MTU, as a code.
    pub path_mtu: u8,
    /// ACK timeout, as a code.
    pub ack_timeout: u8,
    /// Our membership.
    pub pkey: PKey,
    /// What the connection's packets carry.
    pub marked: Marked,
    /// For the peer's consumer.
    pub private_data: [u8; CONSUMER_LEN],
    /// How long connecting may take.
    pub timeout: Duration,
}

/// A peer's connection request.
#[derive(Debug, Clone)]
pub struct Request {
    /// Addresses.
    pub path: Path,
    /// The listener's address, as the peer named it.
    pub local: SocketAddr,
    /// The peer's address and port, as it named them.
    pub peer: SocketAddr,
    /// The peer's queue pair.
    pub terms: QpTerms,
    /// How often we retry.
    pub retry_count: u8,
    /// Path MTU, as a code.
    pub path_mtu: u8,
    /// ACK timeout, as a code.
    pub ack_timeout: u8,
    /// The peer's membership.
    pub pkey: PKey,
    /// Traffic class of the connection's packets.
    pub traffic_class: u8,
    /// For our consumer.
    pub private_data: [u8; CONSUMER_LEN],
}

/// What happened.
#[derive(Debug, Clone)]
pub enum CmEvent {
    /// A peer requests a connection: accept or reject it.
    Request {
        /// Which.
        id: ConnId,
        /// Its request.
        request: Box<Request>,
    },
    /// The peer, or a time limit, has ended a request that was not answered yet.
    Withdrawn {
        /// Which.
        id: ConnId,
    },
    /// The peer accepted: we are connected.
    Accepted {
        /// Which.
        id: ConnId,
        /// The peer's queue pair.
        terms: QpTerms,
        /// From the peer's consumer.
        private_data: [u8; rep::PRIVATE_LEN],
    },
    /// The peer has received our REP: the connection works.
    Established {
        /// Which.
        id: ConnId,
    },
    /// The peer refused.
    Rejected {
        /// Which.
        id: ConnId,
        /// IBTA 12.6.7.2.
        reason: u16,
        /// With [`RejReason::InvalidPathMtu`](crate::wire::cm::RejReason), the
        /// MTU code that would do.
        info: u8,
        /// From the peer's consumer.
        private_data: [u8; rej::PRIVATE_LEN],
    },
    /// The peer did not answer in time.
    TimedOut {
        /// Which.
        id: ConnId,
    },
    /// The peer sent a DREQ.
    Disconnected {
        /// Which.
        id: ConnId,
    },
    /// A message without our communication id says that the peer has lost the connection. The
    /// connection stays: its owner asks the peer's queue pair, and disconnects if that is silent.
    Questioned {
        /// The connection.
        id: ConnId,
    },
}

/// A message to send.
#[derive(Debug, Clone)]
pub struct Transmit {
    /// Addresses.
    pub path: Path,
    /// What it is to carry.
    pub marked: Marked,
    /// The datagram, for QP1.
    pub mad: [u8; MAD_LEN],
}

/// Where a connection stands (IBTA 12.9.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    ReqSent,
    /// The consumer has to decide.
    ReqReceived,
    RepSent,
    /// The consumer has left after its REP, and the peer's address is not proven: the RTU proves
    /// it, and has a DREQ for its answer.
    Left,
    Established,
    DreqSent,
    TimeWait,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: State,
    pub(super) path: Path,
    /// What its messages carry.
    pub(super) marked: Marked,
    pub(super) ids: CommIds,
    pub(super) transaction_id: u64,
    pub(super) local_qpn: u32,
    /// The peer's GUID and queue pair: together they name it for ever.
    pub(super) remote_qp: Option<RemoteQp>,
    /// The latest message, to send again.
    pub(super) last: Option<Box<[u8; MAD_LEN]>>,
    /// When to send it again, or when the state ends.
    pub(super) deadline: Option<Instant>,
    /// Until the next repetition.
    pub(super) interval: Duration,
    /// The peer's address is not proven yet: each message to it answers one from it.
    pub(super) quiet: bool,
    /// Until when it is repeated.
    pub(super) gives_up_at: Instant,
    /// When the last [`CmEvent::Questioned`] was made.
    pub(super) questioned_at: Option<Instant>,
}

/// A queue pair of any machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct RemoteQp {
    pub(super) address: IpAddr,
    pub(super) guid: u64,
    pub(super) qpn: u32,
}
