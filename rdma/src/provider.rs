//! Traits that each RDMA provider implements.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::Mapping;

use crate::access::Access;
use crate::connection::{ConnHandle, ConnectOptions, Event, ListenOptions, PrivateData, QpOptions};
use crate::error::FabricError;
use crate::marking::{Marked, Marking};
use crate::memory::Region;
use crate::work::PostError;
use crate::work::{Completion, QpId, RecvWork, SendWork};

/// Event of a listener, reported on a provider thread.
#[derive(Debug)]
pub enum ListenerEvent {
    /// A host requests a connection.
    Request(Box<ConnRequest>),
    /// The device or address is gone. The listener retries until it works again.
    Down {
        /// Error message.
        reason: String,
    },
    /// The listener works again after `Down`.
    Up,
}

/// Connection request of a peer.
///
/// Answer it with [`Endpoint::accept`] of any endpoint of `device`, or with
/// [`ConnRequest::reject`]. A dropped request is rejected without private data.
///
/// [`Endpoint::accept`]: crate::Endpoint::accept
#[derive(Debug)]
pub struct ConnRequest {
    /// Local address and port.
    pub local: SocketAddr,
    /// Address and port of the peer.
    pub peer: SocketAddr,
    /// Private data of the REQ without the RDMA-CM header.
    pub private_data: PrivateData,
    /// Maximum outstanding READs answered by the peer; may be 0.
    pub peer_responder_resources: u8,
    /// Maximum outstanding READs sent by the peer.
    pub peer_initiator_depth: u8,
    /// Device on which the request arrived.
    pub device: Arc<dyn Device>,
    /// Provider-specific part of the request.
    pub handle: Box<dyn ConnHandle>,
}

impl ConnRequest {
    /// Sets traffic class and hop limit of a REJ.
    ///
    /// An accepted request uses the marking in [`QpOptions`] instead.
    pub fn mark(&mut self, marking: Marking) {
        self.handle.mark(marking);
    }

    /// Sends a REJ with this private data.
    pub fn reject(self, private_data: &[u8]) {
        self.handle.reject(private_data);
    }
}

/// Callback for a listener's events. Runs on a provider thread, and must not block.
pub type Sink = Box<dyn Fn(ListenerEvent) + Send + Sync>;

/// RDMA implementation: verbs, user-space RoCE or loopback.
pub trait Provider: Send + Sync + fmt::Debug {
    /// Returns "verbs", "soft" or "loopback".
    fn name(&self) -> &'static str;

    /// Listens until the returned [`Listener`] is dropped.
    ///
    /// # Errors
    /// No device owns the address, the address has another listener, or the provider cannot work on
    /// this machine.
    fn listen(&self, options: &ListenOptions, sink: Sink)
    -> Result<Box<dyn Listener>, FabricError>;

    /// Returns the device for connections to `remote`. If `local` is given, the device owns that
    /// address.
    fn device_for(
        &self,
        remote: SocketAddr,
        local: Option<IpAddr>,
    ) -> Result<Arc<dyn Device>, FabricError>;

    /// Returns the counters that the operating system does not export, by device.
    fn counters(&self) -> Vec<DeviceCounters> {
        Vec::new()
    }
}

/// Counters of a device in a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Name of the device.
    pub device: String,
    /// Names and values. Counters that RDMA drivers export in `hw_counters` have the same names.
    pub counters: Vec<(&'static str, u64)>,
}

/// Listening address. Dropping it stops listening; accepted connections stay.
pub trait Listener: Send + fmt::Debug {
    /// Returns the local address, with the port chosen for port 0.
    fn local_addr(&self) -> SocketAddr;
}

/// Network adapter, shared by all reactors.
pub trait Device: Send + Sync + fmt::Debug {
    /// Returns the name, such as "rxe0" or "mlx5_0".
    fn name(&self) -> &str;

    /// Returns the adapter's unique number, which isolated devices share. An adapter plugged in
    /// again has a new number.
    fn id(&self) -> u64;

    /// Returns this adapter with a new protection domain.
    ///
    /// Only queue pairs of endpoints opened on the returned device can access memory registered
    /// with that device. A host uses one domain per association, so that no target can access
    /// memory registered for another.
    fn isolated(self: Arc<Self>) -> Result<Arc<dyn Device>, FabricError>;

    /// Pins and registers the whole `mapping` until the region is dropped.
    ///
    /// # Errors
    /// The memory cannot be locked. The error names the limit.
    fn register(&self, mapping: Arc<Mapping>, access: Access) -> Result<Region, FabricError>;

    /// Opens an endpoint for the calling thread.
    fn open(self: Arc<Self>, options: &EndpointOptions) -> Result<Box<dyn Endpoint>, FabricError>;
}

/// Sizes of an endpoint's queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointOptions {
    /// Maximum posted receives.
    pub receives: u32,
    /// Maximum completions not yet polled.
    ///
    /// The caller must not post more work than can complete within this limit. Each receive counts,
    /// and each signaled or failed send request.
    pub completions: u32,
    /// Maximum queue pairs.
    pub queue_pairs: u16,
}

/// Limits of an endpoint's device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointLimits {
    /// Maximum outstanding send-queue work requests of a queue pair.
    pub send_work: u32,
    /// Maximum outstanding READs sent by a queue pair.
    pub initiator_depth: u8,
    /// Maximum outstanding READs answered by a queue pair.
    pub responder_resources: u8,
    /// True if [`Operation::SendWithInvalidate`](crate::Operation) is supported.
    pub send_with_invalidate: bool,
    /// True if any queue pair may use any receive. Otherwise, [`QpOptions::receives`] limits each
    /// queue pair.
    pub shared_receives: bool,
}

/// Packet size and round trip of a queue pair with UDP segmentation offload.
///
/// Several packets of equal length sent together then cost as much as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trains {
    /// Maximum payload of a SEND in one packet, in bytes.
    pub packet_bytes: u32,
    /// Shortest measured time from a packet to its acknowledgement, if measured.
    pub round_trip: Option<Duration>,
}

/// Queues of one reactor on a device.
pub trait Endpoint {
    /// Returns the device that opened this endpoint.
    fn device(&self) -> &Arc<dyn Device>;

    /// Returns the device's limits for this endpoint's queue pairs.
    fn limits(&self) -> EndpointLimits;

    /// Adds receives for all queue pairs.
    ///
    /// # Errors
    /// [`PostError::Full`] if more than [`EndpointOptions::receives`] would be posted,
    /// [`PostError::Broken`] if the device is gone.
    fn post_receives(&mut self, works: &[RecvWork]) -> Result<(), PostError>;

    /// Accepts a request: creates the queue pair and sends the REP.
    ///
    /// [`Event::Established`] follows. The peer's first message may be polled before this event.
    ///
    /// # Errors
    /// The peer is gone, or the device is full. The request is then rejected.
    fn accept(
        &mut self,
        request: ConnRequest,
        options: &QpOptions,
        private_data: &[u8],
    ) -> Result<QpId, FabricError>;

    /// Starts a connection attempt.
    ///
    /// [`Event::Established`], [`Event::Rejected`] or [`Event::ConnectFailed`] follows.
    fn connect(
        &mut self,
        options: &ConnectOptions,
        private_data: &[u8],
    ) -> Result<QpId, FabricError>;

    /// Returns packet size and round trip; `None` if the provider gains nothing from equal packet
    /// lengths.
    fn trains(&mut self, _qp: QpId) -> Option<Trains> {
        None
    }

    /// Returns the marking of the packets, if known.
    ///
    /// May make a system call: not for the data path.
    fn marked(&mut self, qp: QpId) -> Option<Marked>;

    /// Changes the marking of packets and connection messages, except fields that are `None`.
    ///
    /// Returns `false` if the provider cannot: adapters fix the marking when a queue pair is
    /// created.
    fn set_marking(&mut self, qp: QpId, marking: Marking) -> bool;

    /// Posts a chain of work requests in order: all of them or none.
    fn post(&mut self, qp: QpId, chain: &[SendWork]) -> Result<(), PostError>;

    /// Writes up to `out.len()` completions to `out` and returns their number. Later entries are
    /// unchanged.
    ///
    /// A software endpoint does its network work here. It may delay acknowledgements until a
    /// response or [`arm`](Self::arm) sends them.
    fn poll(&mut self, out: &mut [Completion]) -> usize;

    /// Appends the pending connection events to `out`.
    fn poll_events(&mut self, out: &mut Vec<Event>);

    /// Handles all connection messages that arrived at this machine.
    ///
    /// The next [`poll_events`](Self::poll_events) reports the connections ended by these messages.
    /// May make a system call: not for the data path.
    fn drain_connections(&mut self);

    /// Closes the connection.
    ///
    /// All outstanding work completes, flushed if necessary; then [`Event::Closed`] follows. A call
    /// for a closing queue pair has no effect.
    fn disconnect(&mut self, qp: QpId);

    /// Prepares to sleep: a later completion or event makes a descriptor of
    /// [`wait_fds`](Self::wait_fds) readable.
    ///
    /// Returns true if work is pending. The caller must then poll again.
    fn arm(&mut self) -> Result<bool, FabricError>;

    /// Returns the descriptors to watch for readability while asleep. The caller does not read from
    /// them.
    fn wait_fds(&self) -> &[RawFd];

    /// Returns the time at which the owner must poll for the next timer; `None` if no timer runs.
    fn next_deadline(&self) -> Option<Instant>;
}
