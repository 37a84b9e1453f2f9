//! How queue pairs come and go.

use std::any::Any;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::marking::Marking;
use crate::partition::PKey;
use crate::work::QpId;

/// The most private data any connection message carries (a REP's, IBTA 12.6.8).
pub const PRIVATE_DATA_MAX: usize = 196;

/// Private data of a connection message, by value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivateData {
    bytes: [u8; PRIVATE_DATA_MAX],
    length: u8,
}

impl PrivateData {
    /// A copy of `bytes`, cut at [`PRIVATE_DATA_MAX`].
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

    /// The bytes. Transports pad: there may be more than the peer's consumer gave.
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

/// What RoCE in user space puts on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Roce {
    /// Ethernet frames.
    V1 {
        /// VID of the tag that is written and wanted; `None` leaves tags to the
        /// kernel.
        vlan: Option<u16>,
    },
    /// UDP.
    V2,
}

/// Where and how to listen.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// Address and port. Port 0 lets the provider choose.
    pub address: SocketAddr,
    /// Connection requests that may wait to be answered.
    pub backlog: u32,
    /// It accepts requests of this partition, and its queue pairs have this membership.
    pub pkey: PKey,
    /// What user space speaks there: the provider's own if not given. Adapters know by themselves.
    pub roce: Option<Roce>,
}

/// A provider's half of a [`ConnRequest`](crate::ConnRequest).
pub trait ConnHandle: Any + Send + fmt::Debug {
    /// Has refusals carry that, if the provider is who sends them.
    fn mark(&mut self, marking: Marking);
    /// Sends the REJ.
    fn reject(self: Box<Self>, private_data: &[u8]);
    /// Drops the request without an answer, if the provider can: the peer repeats it.
    fn ignore(self: Box<Self>) {
        self.reject(&[]);
    }
    /// For the provider's own `accept`, which takes its own type back.
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send>;
}

/// What a queue pair must be able to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpOptions {
    /// Send-queue work requests outstanding at a time.
    pub send_work: u32,
    /// Our RDMA READs outstanding at a time; the provider lowers it to what
    /// peer and device can do.
    pub initiator_depth: u8,
    /// The peer's RDMA READs that we answer at a time.
    pub responder_resources: u8,
    /// Traffic class (ToS) of our packets. `None`: as the peer's request had it.
    pub traffic_class: Option<u8>,
    /// Hop limit of our packets. `None`: the provider's default.
    pub hop_limit: Option<u8>,
    /// Transport retries before a peer counts as gone, 0..=7.
    pub retry_count: u8,
    /// Receiver-not-ready retries, 0..=7; 7 means for ever.
    pub rnr_retry_count: u8,
    /// How long a peer waits when no receive is posted here: the code of
    /// IBTA table 45 (1 is 10 us, 12 is 0.64 ms, 0 is 655 ms).
    pub min_rnr_timer: u8,
}

impl QpOptions {
    /// What its packets are to carry.
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

/// Where to connect to.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// The peer's listener.
    pub remote: SocketAddr,
    /// The local address to connect from. `None`: the provider chooses.
    pub local: Option<IpAddr>,
    /// The membership to connect as.
    pub pkey: PKey,
    /// The queue pair.
    pub qp: QpOptions,
    /// How long the whole connect may take.
    pub timeout: Duration,
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisconnectReason {
    /// The peer disconnected.
    Peer,
    /// The transport gave up: the status of the first failed work, where known.
    Transport,
    /// The local address moved to another device.
    AddressChanged,
    /// The peer's address moved to another adapter: its MAC is another one.
    PeerMoved,
    /// The device is going away.
    DeviceRemoved,
}

/// What happened to a connection or to the device.
#[derive(Debug, Clone)]
pub enum Event {
    /// The connection works in both directions. Private data: the REP's, on the
    /// connecting side.
    Established {
        /// Which.
        qp: QpId,
        /// From the peer's acceptance.
        private_data: PrivateData,
    },
    /// The peer, or its machine, refused. `Closed` follows by itself.
    Rejected {
        /// Which.
        qp: QpId,
        /// From the peer's refusal.
        private_data: PrivateData,
        /// The CM reason (IBTA 12.6.7.2): 8 no such service, 28 consumer, ...
        reason: u16,
    },
    /// No connection came about. `Closed` follows by itself.
    ConnectFailed {
        /// Which.
        qp: QpId,
        /// In words, with the remedy where there is one.
        reason: String,
    },
    /// The connection ended and this end has to let go:
    /// call [`Endpoint::disconnect`](crate::Endpoint::disconnect).
    Disconnected {
        /// Which.
        qp: QpId,
        /// Why.
        reason: DisconnectReason,
    },
    /// All work of the queue pair has completed and it is no more. The last
    /// thing that is ever said of this id; until it is polled, no other queue
    /// pair has the id's slot.
    Closed {
        /// Which.
        qp: QpId,
    },
    /// The device is gone: drop the endpoint. Nothing completes any more.
    DeviceRemoved,
    /// A line for the log.
    Notice {
        /// In words.
        message: String,
    },
}
