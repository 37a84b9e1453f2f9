//! Options, private data and events of RDMA connections.

use std::any::Any;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::ack_timeout::AckTimeout;
use crate::marking::Marking;
use crate::partition::PKey;
use crate::work::QpId;

/// Maximum private data in bytes: that of a REP (IBTA 12.6.8). A REQ or REJ permits less.
pub const PRIVATE_DATA_MAX: usize = 196;

/// Private data of a REQ, REP or REJ.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivateData {
    bytes: [u8; PRIVATE_DATA_MAX],
    length: u8,
}

impl PrivateData {
    /// Copies `bytes`, up to [`PRIVATE_DATA_MAX`].
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let length = bytes.len().min(PRIVATE_DATA_MAX);
        let mut data = Self {
            bytes: [0; PRIVATE_DATA_MAX],
            length: length as u8,
        };
        data.bytes[..length].copy_from_slice(&bytes[..length]);
        data
    }

    /// Returns the bytes, including padding added by some transports.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Debug for PrivateData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateData({:02x?})", self.as_slice())
    }
}

/// RoCE version of the soft provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Roce {
    /// RoCE v1 in Ethernet frames.
    V1 {
        /// VLAN ID of the tag in each frame. With `None`, the kernel writes the tag of a VLAN
        /// interface.
        vlan: Option<u16>,
    },
    /// RoCE v2 in UDP datagrams.
    V2,
}

/// Address and options of a listener.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// Local address and port. For port 0, the provider chooses the port.
    pub address: SocketAddr,
    /// Maximum unanswered connection requests.
    pub backlog: u32,
    /// Partition of accepted requests, and P_Key of their queue pairs.
    pub pkey: PKey,
    /// RoCE version of the soft provider; `None`: the provider's default.
    pub roce: Option<Roce>,
}

/// Provider-specific part of a [`ConnRequest`](crate::ConnRequest).
pub trait ConnHandle: Any + Send + fmt::Debug {
    /// Sets traffic class and hop limit of a REJ that answers the request.
    fn mark(&mut self, marking: Marking);
    /// Sends a REJ with this private data.
    fn reject(self: Box<Self>, private_data: &[u8]);
    /// Drops the request without an answer, so that the peer repeats it. Providers without this
    /// ability send a REJ.
    fn ignore(self: Box<Self>) {
        self.reject(&[]);
    }
    /// Converts to `Any`, for downcasts in the provider's `accept`.
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send>;
}

/// Depths, retries, timeouts and marking of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpOptions {
    /// Maximum outstanding work requests of the send queue.
    pub send_work: u32,
    /// Maximum number of the endpoint's receives in use by this queue pair, if the device has no
    /// shared receive queue. A completed receive counts until posted again.
    pub receives: u32,
    /// Maximum outstanding READs sent by this end. The provider lowers this value to the limits of
    /// the peer and the device.
    pub initiator_depth: u8,
    /// Maximum outstanding READs answered by this end.
    pub responder_resources: u8,
    /// Traffic class of sent packets, as in [`Marking`].
    pub traffic_class: Option<u8>,
    /// Hop limit of sent packets; `None`: the provider's default.
    pub hop_limit: Option<u8>,
    /// Transport retries before the connection breaks, 0..=7.
    pub retry_count: u8,
    /// Time after which an adapter repeats unacknowledged packets; adapters may wait up to four
    /// times as long. With `None`, the connection manager chooses. The soft provider ignores this
    /// field and measures the round trip.
    pub ack_timeout: Option<AckTimeout>,
    /// Retries after a receiver-not-ready NAK, 0..=7, where 7 means unlimited.
    pub rnr_retry_count: u8,
    /// Time after which the peer may repeat a SEND that found no posted receive, as a code of IBTA
    /// table 45: 1 is 10 us, 12 is 0.64 ms, 0 is 655 ms.
    pub min_rnr_timer: u8,
}

impl QpOptions {
    /// Returns the requested traffic class and hop limit.
    #[must_use]
    pub fn marking(&self) -> Marking {
        Marking {
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
        }
    }
}

impl Default for QpOptions {
    fn default() -> Self {
        Self {
            send_work: 256,
            receives: 64,
            initiator_depth: 16,
            responder_resources: 16,
            traffic_class: None,
            hop_limit: None,
            retry_count: 6,
            ack_timeout: None,
            rnr_retry_count: 6,
            min_rnr_timer: 1,
        }
    }
}

/// Destination and options of a connection attempt.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// Address of the peer's listener.
    pub remote: SocketAddr,
    /// Local address; `None`: the provider chooses.
    pub local: Option<IpAddr>,
    /// P_Key of the queue pair.
    pub pkey: PKey,
    /// Options of the queue pair.
    pub qp: QpOptions,
    /// Maximum time until the connection is established.
    pub timeout: Duration,
}

/// Reason why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisconnectReason {
    /// The peer disconnected.
    Peer,
    /// The transport failed: retries were exhausted, or a work request failed.
    Transport,
    /// The local address moved to another RDMA device.
    AddressChanged,
    /// The peer's address moved to another MAC address.
    PeerMoved,
    /// The local device is being removed.
    DeviceRemoved,
    /// The local device refused a work request, or one of its queues failed.
    DeviceFault,
}

/// Event of a queue pair, an endpoint or a device.
#[derive(Debug, Clone)]
pub enum Event {
    /// The peer's REP, RTU or first message arrived.
    Established {
        /// Connected queue pair.
        qp: QpId,
        /// Private data of the peer's REP; empty at the accepting end.
        private_data: PrivateData,
    },
    /// The peer refused the connection. `Closed` follows without a call of `disconnect`.
    Rejected {
        /// Refused queue pair.
        qp: QpId,
        /// Private data of the peer's REJ.
        private_data: PrivateData,
        /// CM reject reason (IBTA 12.6.7.2), such as 8 (invalid service ID) or 28 (consumer
        /// reject).
        reason: u16,
    },
    /// The attempt failed. `Closed` follows without a call of `disconnect`.
    ConnectFailed {
        /// Unconnected queue pair.
        qp: QpId,
        /// Error message, with a remedy if there is one.
        reason: String,
    },
    /// The connection ended. The owner must call
    /// [`Endpoint::disconnect`](crate::Endpoint::disconnect).
    Disconnected {
        /// Queue pair to disconnect.
        qp: QpId,
        /// Cause of the disconnection.
        reason: DisconnectReason,
    },
    /// All work has completed and the queue pair is destroyed. No later event contains this id, and
    /// the slot is not reused before this event is polled.
    Closed {
        /// Destroyed queue pair.
        qp: QpId,
    },
    /// The device was removed: no more work completes. The owner must drop the endpoint.
    DeviceRemoved,
    /// A queue of the endpoint failed: no more work completes. The owner must drop the endpoint.
    /// Other endpoints of the device continue to work.
    EndpointBroken {
        /// Error message.
        reason: String,
    },
    /// Message that the owner should log.
    Notice {
        /// Line about a device or a peer.
        message: String,
    },
}
