//! State of one connection, with its inputs and outputs.

use crate::time::Instant;
use alloc::boxed::Box;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use cairn_rdma::{Marked, PKey};

use crate::wire::cm::ip_cm::CONSUMER_LEN;
use crate::wire::cm::{CommIds, rej, rep};
use crate::wire::mad::MAD_LEN;

/// Connection, by its local communication id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnId(pub(super) u32);

/// Addresses between which messages travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// Local address.
    pub local: IpAddr,
    /// Peer's address.
    pub remote: IpAddr,
}

/// Queue pair parameters of a connection message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpTerms {
    /// Queue pair number.
    pub qpn: u32,
    /// First PSN that the queue pair expects.
    pub starting_psn: u32,
    /// Maximum outstanding READs and atomics answered.
    pub responder_resources: u8,
    /// Maximum outstanding READs and atomics sent.
    pub initiator_depth: u8,
    /// Retries of the peer without a posted receive.
    pub rnr_retry_count: u8,
}

/// Parameters of an outgoing connection request.
#[derive(Debug, Clone)]
pub struct Connect {
    /// Addresses.
    pub path: Path,
    /// Local port, as stated in the request.
    pub local_port: u16,
    /// Port of the peer's listener.
    pub remote_port: u16,
    /// Local queue pair.
    pub terms: QpTerms,
    /// Transport retries of the peer.
    pub retry_count: u8,
    /// Path MTU, as a code.
    pub path_mtu: u8,
    /// ACK timeout, as a code.
    pub ack_timeout: u8,
    /// Local partition membership.
    pub pkey: PKey,
    /// Marking of the connection's packets.
    pub marked: Marked,
    /// Private data for the peer's consumer.
    pub private_data: [u8; CONSUMER_LEN],
    /// Timeout of the whole attempt.
    pub timeout: Duration,
}

/// Connection request of a peer.
#[derive(Debug, Clone)]
pub struct Request {
    /// Addresses.
    pub path: Path,
    /// Listener's address, as stated by the peer.
    pub local: SocketAddr,
    /// Peer's address and port, as stated by the peer.
    pub peer: SocketAddr,
    /// Peer's queue pair.
    pub terms: QpTerms,
    /// Transport retries of the local end.
    pub retry_count: u8,
    /// Path MTU, as a code.
    pub path_mtu: u8,
    /// ACK timeout, as a code.
    pub ack_timeout: u8,
    /// Peer's partition membership.
    pub pkey: PKey,
    /// Traffic class of the connection's packets.
    pub traffic_class: u8,
    /// Private data for the local consumer.
    pub private_data: [u8; CONSUMER_LEN],
}

/// Event of the connection manager.
#[derive(Debug, Clone)]
pub enum CmEvent {
    /// A peer requests a connection, to be accepted or rejected.
    Request {
        /// Connection of the request.
        id: ConnId,
        /// Parameters of the request.
        request: Box<Request>,
    },
    /// The peer or a timeout ended a request before its answer.
    Withdrawn {
        /// Connection of the request.
        id: ConnId,
    },
    /// The peer accepted the connection.
    Accepted {
        /// Established connection.
        id: ConnId,
        /// Peer's queue pair.
        terms: QpTerms,
        /// Private data of the peer's consumer.
        private_data: [u8; rep::PRIVATE_LEN],
    },
    /// The peer has received the REP.
    Established {
        /// Established connection.
        id: ConnId,
    },
    /// The peer refused the connection.
    Rejected {
        /// Refused connection.
        id: ConnId,
        /// Reject reason (IBTA 12.6.7.2).
        reason: u16,
        /// Acceptable MTU code, with [`RejReason::InvalidPathMtu`](crate::wire::cm::RejReason).
        info: u8,
        /// Private data of the peer's consumer.
        private_data: [u8; rej::PRIVATE_LEN],
    },
    /// The peer did not answer in time.
    TimedOut {
        /// Failed connection.
        id: ConnId,
    },
    /// The peer sent a DREQ.
    Disconnected {
        /// Ended connection.
        id: ConnId,
    },
    /// A message without our communication id suggests that the peer has lost the connection.
    ///
    /// The connection remains. Its owner probes the peer's queue pair, and disconnects after
    /// silence.
    Questioned {
        /// Connection that the peer may have lost.
        id: ConnId,
    },
}

/// Message to send.
#[derive(Debug, Clone)]
pub struct Transmit {
    /// Addresses.
    pub path: Path,
    /// Marking of the packet.
    pub marked: Marked,
    /// Datagram for QP1.
    pub mad: [u8; MAD_LEN],
}

/// State of a connection (IBTA 12.9.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    ReqSent,
    ReqReceived,
    RepSent,
    /// The consumer disconnected after its REP, before the peer's address was proven.
    ///
    /// An RTU proves it and is answered by a DREQ.
    Left,
    Established,
    DreqSent,
    TimeWait,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: State,
    pub(super) path: Path,
    pub(super) marked: Marked,
    pub(super) ids: CommIds,
    pub(super) transaction_id: u64,
    pub(super) local_qpn: u32,
    pub(super) remote_qp: Option<RemoteQp>,
    pub(super) last: Option<Box<[u8; MAD_LEN]>>,
    pub(super) deadline: Option<Instant>,
    pub(super) interval: Duration,
    /// True until the peer's address is proven; until then, messages are only sent as answers to
    /// the peer.
    pub(super) quiet: bool,
    pub(super) gives_up_at: Instant,
    pub(super) questioned_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct RemoteQp {
    pub(super) address: IpAddr,
    pub(super) guid: u64,
    pub(super) qpn: u32,
}
