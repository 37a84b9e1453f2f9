//! Connections of queue pairs: options, private data, events and reasons for their end.

use std::any::Any;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::marking::Marking;
use crate::partition::PKey;
use crate::work::QpId;

/// Largest private data of any connection message, in bytes (REP, IBTA 12.6.8).
pub const PRIVATE_DATA_MAX: usize = 196;

/// Private data of a connection message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivateData {
    bytes: [u8; PRIVATE_DATA_MAX],
    length: u8,
}

impl PrivateData {
    /// Copies `bytes`, truncated to [`PRIVATE_DATA_MAX`].
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

    /// Returns the bytes, possibly padded by the transport.
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

/// RoCE version of user-space RoCE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Roce {
    /// Ethernet frames.
    V1 {
        /// `None` leaves tags to the kernel.
        vlan: Option<u16>,
    },
    /// UDP.
    V2,
}

/// Address and options of a listener.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// Address and port. Port 0 lets the provider choose.
    pub address: SocketAddr,
    /// Maximum number of unanswered connection requests.
    pub backlog: u32,
    /// Partition of accepted requests, and membership of their queue pairs.
    pub pkey: PKey,
    /// RoCE version for user-space RoCE; `None` for the provider's version.
    pub roce: Option<Roce>,
}

/// Provider-specific part of a [`ConnRequest`](crate::ConnRequest).
pub trait ConnHandle: Any + Send + fmt::Debug {
    /// Sets the marking of a refusal sent by the provider.
    fn mark(&mut self, marking: Marking);
    /// Sends the REJ.
    fn reject(self: Box<Self>, private_data: &[u8]);
    /// Drops the request without an answer if possible; the peer then repeats it.
    fn ignore(self: Box<Self>) {
        self.reject(&[]);
    }
    /// Converts into `Any` for the provider's `accept`.
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send>;
}

/// Requirements on a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpOptions {
    /// Maximum outstanding send-queue work requests.
    pub send_work: u32,
    /// Maximum outstanding RDMA READs sent by this end.
    ///
    /// The provider lowers it to the limits of peer and device.
    pub initiator_depth: u8,
    /// Maximum outstanding RDMA READs answered by this end.
    pub responder_resources: u8,
    /// Traffic class (ToS) of sent packets. `None`: copied from the peer's request.
    pub traffic_class: Option<u8>,
    /// Hop limit of sent packets. `None`: the provider's default.
    pub hop_limit: Option<u8>,
    /// Transport retries before the connection ends, 0..=7.
    pub retry_count: u8,
    /// Receiver-not-ready retries, 0..=7; 7 means no limit.
    pub rnr_retry_count: u8,
    /// Peer's wait if no receive is posted here, as a code of IBTA table 45 (1 is 10 us, 12 is 0.64
    /// ms, 0 is 655 ms).
    pub min_rnr_timer: u8,
}

impl QpOptions {
    /// Returns the requested marking of the packets.
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
            initiator_depth: 16,
            responder_resources: 16,
            traffic_class: None,
            hop_limit: None,
            retry_count: 6,
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
    /// Local address to connect from. `None`: the provider chooses.
    pub local: Option<IpAddr>,
    /// Partition membership of the queue pair.
    pub pkey: PKey,
    /// Requirements on the queue pair.
    pub qp: QpOptions,
    /// Timeout of the whole attempt.
    pub timeout: Duration,
}

/// Reason why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisconnectReason {
    /// The peer disconnected.
    Peer,
    /// The transport failed: the retry budget is exhausted, or a work request failed.
    Transport,
    /// The local address moved to another device.
    AddressChanged,
    /// The peer's address moved to another adapter (MAC address).
    PeerMoved,
    /// The device is being removed.
    DeviceRemoved,
}

/// Event of a connection or of the device.
#[derive(Debug, Clone)]
pub enum Event {
    /// The connection is ready in both directions.
    Established {
        /// Queue pair.
        qp: QpId,
        /// Private data of the peer's REP, on the connecting side.
        private_data: PrivateData,
    },
    /// The peer or its machine refused. `Closed` follows without a call.
    Rejected {
        /// Queue pair.
        qp: QpId,
        /// Private data of the peer's REJ.
        private_data: PrivateData,
        /// CM reject reason (IBTA 12.6.7.2), such as 8 (invalid service ID) or 28 (consumer
        /// reject).
        reason: u16,
    },
    /// The attempt failed. `Closed` follows without a call.
    ConnectFailed {
        /// Queue pair.
        qp: QpId,
        /// Error, with a remedy where there is one.
        reason: String,
    },
    /// The connection ended.
    ///
    /// The owner must call [`Endpoint::disconnect`](crate::Endpoint::disconnect).
    Disconnected {
        /// Queue pair.
        qp: QpId,
        /// Reason for the end.
        reason: DisconnectReason,
    },
    /// All work has completed and the queue pair is destroyed.
    ///
    /// No later event has the id. Its slot is reused only after this event has been polled.
    Closed {
        /// Queue pair.
        qp: QpId,
    },
    /// The device was removed: nothing completes any more, and the owner must drop the endpoint.
    DeviceRemoved,
    /// Message for the log.
    Notice {
        /// Message in words.
        message: String,
    },
}
