//! Connection state, and the inputs and outputs of the connection manager.

use crate::time::Instant;
use alloc::boxed::Box;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use cairn_rdma::{Marked, PKey};

use crate::wire::cm::ip_cm::CONSUMER_LEN;
use crate::wire::cm::{CommIds, LongSend, rej, rep};
use crate::wire::mad::MAD_LEN;

/// Local communication id of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnId(pub(super) u32);

/// Local and remote address of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// Local address.
    pub local: IpAddr,
    /// Peer's address.
    pub remote: IpAddr,
}

/// Queue pair parameters of the sender of a REQ or REP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpTerms {
    /// Queue pair number.
    pub qpn: u32,
    /// First PSN that the queue pair expects.
    pub starting_psn: u32,
    /// Maximum outstanding READs and atomics that the sender answers.
    pub responder_resources: u8,
    /// Maximum outstanding READs and atomics that the sender issues.
    pub initiator_depth: u8,
    /// RNR retries requested from the receiver.
    pub rnr_retry_count: u8,
    /// Limit for SENDs longer than the path MTU: offered in a REQ, agreed in a REP.
    pub long_send: Option<LongSend>,
}

/// Parameters of an outgoing connection request.
#[derive(Debug, Clone)]
pub struct Connect {
    /// Local and remote address.
    pub path: Path,
    /// Local port in the REQ.
    pub local_port: u16,
    /// Port of the peer's listener.
    pub remote_port: u16,
    /// Parameters of the local queue pair.
    pub terms: QpTerms,
    /// Transport retries requested from the peer.
    pub retry_count: u8,
    /// Path MTU code (1 is 256 bytes, 5 is 4096).
    pub path_mtu: u8,
    /// ACK timeout code (4.096 us * 2^code).
    pub ack_timeout: u8,
    /// P_Key of the local queue pair.
    pub pkey: PKey,
    /// Traffic class and hop limit of the connection's messages.
    pub marked: Marked,
    /// Private data for the peer's consumer.
    pub private_data: [u8; CONSUMER_LEN],
    /// Timeout from the REQ to the REP.
    pub timeout: Duration,
}

/// Connection request of a peer.
#[derive(Debug, Clone)]
pub struct Request {
    /// Local and remote address.
    pub path: Path,
    /// Listener's address and port in the REQ.
    pub local: SocketAddr,
    /// Peer's address and port in the REQ.
    pub peer: SocketAddr,
    /// Parameters of the peer's queue pair.
    pub terms: QpTerms,
    /// Transport retries requested by the peer.
    pub retry_count: u8,
    /// Path MTU code, as in [`Connect::path_mtu`].
    pub path_mtu: u8,
    /// ACK timeout code, as in [`Connect::ack_timeout`].
    pub ack_timeout: u8,
    /// P_Key of the peer's queue pair.
    pub pkey: PKey,
    /// Traffic class in the REQ.
    pub traffic_class: u8,
    /// Private data for the local consumer.
    pub private_data: [u8; CONSUMER_LEN],
}

/// Event of the connection manager.
#[derive(Debug, Clone)]
pub enum CmEvent {
    /// A peer requests a connection; the consumer accepts or rejects it.
    Request {
        /// Requested connection.
        id: ConnId,
        /// Parameters in the REQ.
        request: Box<Request>,
    },
    /// The peer withdrew the request, or the consumer did not answer in time.
    Withdrawn {
        /// Requested connection.
        id: ConnId,
    },
    /// The peer accepted the connection.
    Accepted {
        /// Established connection.
        id: ConnId,
        /// Parameters of the peer's queue pair.
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
        /// Acceptable path MTU code if the reason is
        /// [`RejReason::InvalidPathMtu`](crate::wire::cm::RejReason).
        info: u8,
        /// Private data of the peer's consumer.
        private_data: [u8; rej::PRIVATE_LEN],
    },
    /// The peer did not answer in time or rejected the REP, or a newer request replaced its
    /// request.
    TimedOut {
        /// Failed connection.
        id: ConnId,
    },
    /// The peer ended the connection with a DREQ or REJ.
    Disconnected {
        /// Ended connection.
        id: ConnId,
    },
    /// A message without the local communication id suggests that the peer has lost the connection.
    ///
    /// The message may be forged, so the connection stays established. The owner probes the peer's
    /// queue pair, and disconnects if no answer arrives.
    Questioned {
        /// Connection that the peer may have lost.
        id: ConnId,
    },
}

/// Message to send.
#[derive(Debug, Clone)]
pub struct Transmit {
    /// Local and remote address.
    pub path: Path,
    /// Traffic class and hop limit of the packet.
    pub marked: Marked,
    /// Management datagram for QP1 of the peer.
    pub mad: [u8; MAD_LEN],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionState {
    ReqSent,
    ReqReceived,
    RepSent,
    /// The consumer disconnected before the RTU arrived. The DREQ follows the RTU, which proves the
    /// peer's address.
    Left,
    Established,
    DreqSent,
    TimeWait,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: ConnectionState,
    pub(super) path: Path,
    pub(super) marked: Marked,
    pub(super) ids: CommIds,
    pub(super) transaction_id: u64,
    pub(super) local_qpn: u32,
    /// Limit in the REQ.
    pub(super) long_send: Option<LongSend>,
    pub(super) remote_qp: Option<RemoteQp>,
    pub(super) last: Option<Box<[u8; MAD_LEN]>>,
    pub(super) deadline: Option<Instant>,
    pub(super) interval: Duration,
    /// True while the connection is unconfirmed and the peer's address unproven. Timers then repeat
    /// no message.
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
