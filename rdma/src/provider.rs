//! Traits implemented by each provider.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::access::Access;
use crate::connection::{ConnHandle, ConnectOptions, Event, ListenOptions, PrivateData, QpOptions};
use crate::error::FabricError;
use crate::marking::{Marked, Marking};
use crate::memory::{Mapping, Region};
use crate::work::PostError;
use crate::work::{Completion, QpId, RecvWork, SendWork};

/// Event of a listener, reported on a thread of the provider.
///
/// The sink passes the event on and returns.
#[derive(Debug)]
pub enum ListenerEvent {
    /// A host requests a queue pair.
    Request(Box<ConnRequest>),
    /// The device or address disappeared; the listener keeps trying.
    Down {
        /// Error in words.
        reason: String,
    },
    /// The listener works again after `Down`.
    Up,
}

/// Connection request of a peer.
///
/// Answer it with [`Endpoint::accept`] on any reactor, or with [`ConnRequest::reject`]. Dropping it
/// rejects it without a reason.
///
/// [`Endpoint::accept`]: crate::Endpoint::accept
#[derive(Debug)]
pub struct ConnRequest {
    /// Local address and port.
    pub local: SocketAddr,
    /// Address and port of the peer.
    pub peer: SocketAddr,
    /// Private data without the RDMA-CM header.
    pub private_data: PrivateData,
    /// Maximum outstanding RDMA READs that the peer answers; 0 means none.
    pub peer_responder_resources: u8,
    /// Maximum outstanding RDMA READs that the peer sends.
    pub peer_initiator_depth: u8,
    /// Device on which the request arrived.
    pub device: Arc<dyn Device>,
    /// Provider-specific part of the request.
    pub handle: Box<dyn ConnHandle>,
}

impl ConnRequest {
    /// Sets the marking of the answer, a refusal included.
    ///
    /// To accept, also pass the marking in [`QpOptions`].
    pub fn mark(&mut self, marking: Marking) {
        self.handle.mark(marking);
    }

    /// Refuses the request with the consumer's private data.
    pub fn reject(self, private_data: &[u8]) {
        self.handle.reject(private_data);
    }
}

/// Consumer of a listener's events, on a thread of the provider; must not block.
pub type Sink = Box<dyn Fn(ListenerEvent) + Send + Sync>;

/// Access to a network.
pub trait Provider: Send + Sync + fmt::Debug {
    /// Name: "verbs", "soft" or "loopback".
    fn name(&self) -> &'static str;

    /// Listens until the [`Listener`] is dropped.
    ///
    /// # Errors
    /// No device owns the address, the address has another listener, or the provider cannot work on
    /// this machine.
    fn listen(&self, options: &ListenOptions, sink: Sink)
    -> Result<Box<dyn Listener>, FabricError>;

    /// Returns the device for connections to `remote`, from `local` if given.
    ///
    /// # Errors
    /// No device has a route to `remote`.
    fn device_for(
        &self,
        remote: SocketAddr,
        local: Option<IpAddr>,
    ) -> Result<Arc<dyn Device>, FabricError>;

    /// Returns counters that the operating system lacks.
    fn counters(&self) -> Vec<DeviceCounters> {
        Vec::new()
    }
}

/// Counters of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Name of the device.
    pub device: String,
    /// Names, as in `/sys/class/infiniband/*/ports/*/hw_counters`, and values.
    pub counters: Vec<(&'static str, u64)>,
}

/// Listening address. Dropping it stops listening; connections stay.
pub trait Listener: Send + fmt::Debug {
    /// Local address, with the chosen port.
    fn local_addr(&self) -> SocketAddr;
}

/// Network adapter, shared by all reactors.
pub trait Device: Send + Sync + fmt::Debug {
    /// Name, such as "rxe0" or "mlx5_0".
    fn name(&self) -> &str;

    /// Unique number; a device plugged in again has a new one.
    fn id(&self) -> u64;

    /// Returns the adapter with a separate protection domain.
    ///
    /// Only queue pairs of endpoints opened on the result can access memory registered with it. A
    /// host uses one domain for each association, so that a target can use only its own keys.
    ///
    /// # Errors
    /// The device has no more domains.
    fn isolated(self: Arc<Self>) -> Result<Arc<dyn Device>, FabricError>;

    /// Pins and registers all of `mapping` until the region is dropped.
    ///
    /// # Errors
    /// The memory cannot be locked; the error names the limit.
    fn register(&self, mapping: Arc<Mapping>, access: Access) -> Result<Region, FabricError>;

    /// Opens an endpoint for the calling thread.
    ///
    /// # Errors
    /// The device does not support queues of that size.
    fn open(self: Arc<Self>, options: &EndpointOptions) -> Result<Box<dyn Endpoint>, FabricError>;
}

/// Sizes of an endpoint's queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointOptions {
    /// Maximum number of posted receives.
    pub receives: u32,
    /// Maximum number of unpolled completions.
    ///
    /// The caller must not exceed it: receives, plus signaled and failed send work.
    pub completions: u32,
    /// Maximum number of queue pairs.
    pub queue_pairs: u16,
}

/// Limits of an endpoint's device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointLimits {
    /// Maximum outstanding send-queue work requests of a queue pair.
    pub send_work: u32,
    /// Maximum outstanding RDMA READs sent by a queue pair.
    pub initiator_depth: u8,
    /// Maximum outstanding RDMA READs answered by a queue pair.
    pub responder_resources: u8,
    /// True if [`Operation::SendWithInvalidate`](crate::Operation) is supported.
    pub send_with_invalidate: bool,
}

/// Costs of a queue pair that sends packets of equal length together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trains {
    /// Size of a full packet, in bytes.
    pub packet_bytes: u32,
    /// Shortest measured time from a packet to its acknowledgement, if any.
    pub round_trip: Option<Duration>,
}

/// Queues of one reactor on a device.
pub trait Endpoint {
    /// Device of the endpoint.
    fn device(&self) -> &Arc<dyn Device>;

    /// Limits of the device.
    fn limits(&self) -> EndpointLimits;

    /// Adds receives to the shared receive queue.
    ///
    /// # Errors
    /// [`PostError::Full`] if more than [`EndpointOptions::receives`] would be posted,
    /// [`PostError::Broken`] if the device is gone.
    fn post_receives(&mut self, works: &[RecvWork]) -> Result<(), PostError>;

    /// Accepts a request: creates the queue pair and sends the REP.
    ///
    /// [`Event::Established`] follows; the peer's first message may be polled before.
    ///
    /// # Errors
    /// The peer has gone, or the device is full. The peer is refused.
    fn accept(
        &mut self,
        request: ConnRequest,
        options: &QpOptions,
        private_data: &[u8],
    ) -> Result<QpId, FabricError>;

    /// Starts to connect.
    ///
    /// [`Event::Established`], [`Event::Rejected`] or [`Event::ConnectFailed`] follows.
    ///
    /// # Errors
    /// The attempt cannot start.
    fn connect(
        &mut self,
        options: &ConnectOptions,
        private_data: &[u8],
    ) -> Result<QpId, FabricError>;

    /// Returns the packet size if packets of equal length sent together cost as much as one.
    ///
    /// `None` if no length has an advantage.
    fn trains(&mut self, _qp: QpId) -> Option<Trains> {
        None
    }

    /// Returns the marking in effect. `None` if unknown.
    ///
    /// A system call: not for the data path.
    fn marked(&mut self, qp: QpId) -> Option<Marked>;

    /// Changes the marking of packets and connection messages; fields that are `None` stay.
    ///
    /// Returns `false` if that is impossible: adapters fix the marking at creation.
    fn set_marking(&mut self, qp: QpId, marking: Marking) -> bool;

    /// Posts a chain of work on a queue pair, in order, all or nothing.
    ///
    /// # Errors
    /// [`PostError`]; then none of the chain completes.
    fn post(&mut self, qp: QpId, chain: &[SendWork]) -> Result<(), PostError>;

    /// Takes up to `out.len()` completions and returns their number.
    ///
    /// Entries past that count are stale.
    ///
    /// A software endpoint does its work in this call. It may delay an acknowledgement until the
    /// next call, so that a response can carry it; [`arm`](Self::arm) sends it.
    fn poll(&mut self, out: &mut [Completion]) -> usize;

    /// Takes connection events and appends them to `out`.
    fn poll_events(&mut self, out: &mut Vec<Event>);

    /// Handles all connection messages that have arrived at this machine, on the calling thread.
    ///
    /// The next [`poll_events`](Self::poll_events) reports the connections ended by them, before
    /// any completion is polled. A system call: not for the data path.
    fn drain_connections(&mut self);

    /// Ends the connection.
    ///
    /// All outstanding work completes, flushed if necessary; then [`Event::Closed`] follows. No
    /// effect on a closing queue pair.
    fn disconnect(&mut self, qp: QpId);

    /// Prepares to sleep: a later completion or event makes one of [`wait_fds`](Self::wait_fds)
    /// readable.
    ///
    /// Returns true if something is pending: poll again instead of sleeping.
    ///
    /// # Errors
    /// The device is gone.
    fn arm(&mut self) -> Result<bool, FabricError>;

    /// Descriptors to watch for readability while asleep.
    ///
    /// Only [`poll`](Self::poll) and [`poll_events`](Self::poll_events) read them.
    fn wait_fds(&self) -> &[RawFd];

    /// Time of the next poll required by timers, if any runs.
    fn next_deadline(&self) -> Option<Instant>;
}
