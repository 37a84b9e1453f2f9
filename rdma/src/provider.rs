//! The traits that each provider implements.

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

/// What a listener reports to the control plane. Comes on a thread of the provider:
/// the sink hands it on and returns.
#[derive(Debug)]
pub enum ListenerEvent {
    /// A host requests a queue pair.
    Request(Box<ConnRequest>),
    /// The device or address went away. The listener keeps trying.
    Down {
        /// What happened.
        reason: String,
    },
    /// The listener is back after `Down`.
    Up,
}

/// A peer's request for a connection. Answer it by [`Endpoint::accept`] on the
/// reactor of your choice, or by [`ConnRequest::reject`]; dropping it rejects
/// it without a reason.
///
/// [`Endpoint::accept`]: crate::Endpoint::accept
#[derive(Debug)]
pub struct ConnRequest {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's end.
    pub peer: SocketAddr,
    /// The private data, without the RDMA-CM header.
    pub private_data: PrivateData,
    /// RDMA READs that the peer will answer at a time: the bound for ours.
    /// 0 means that it answers none.
    pub peer_responder_resources: u8,
    /// RDMA READs that the peer may send at a time.
    pub peer_initiator_depth: u8,
    /// The device it came in on.
    pub device: Arc<dyn Device>,
    /// The provider's own handle.
    pub handle: Box<dyn ConnHandle>,
}

impl ConnRequest {
    /// Sets the marking of the answer, a refusal included. To accept, pass it once
    /// more, in [`QpOptions`].
    pub fn mark(&mut self, marking: Marking) {
        self.handle.mark(marking);
    }

    /// Refuses, with the consumer's private data.
    pub fn reject(self, private_data: &[u8]) {
        self.handle.reject(private_data);
    }
}

/// Where a listener's events go. Called on a thread of the provider; must not block.
pub type Sink = Box<dyn Fn(ListenerEvent) + Send + Sync>;

/// A way to reach a network.
pub trait Provider: Send + Sync + fmt::Debug {
    /// "verbs", "soft" or "loopback".
    fn name(&self) -> &'static str;

    /// Listens until the [`Listener`] is dropped.
    ///
    /// # Errors
    /// No device owns the address, something else listens there, or the
    /// provider cannot work on this machine.
    fn listen(&self, options: &ListenOptions, sink: Sink)
    -> Result<Box<dyn Listener>, FabricError>;

    /// The device to use for connecting to `remote`, from `local` if given.
    ///
    /// # Errors
    /// No device has a route there.
    fn device_for(
        &self,
        remote: SocketAddr,
        local: Option<IpAddr>,
    ) -> Result<Arc<dyn Device>, FabricError>;

    /// What its devices count that the system does not: nothing, for devices that
    /// the system knows.
    fn counters(&self) -> Vec<DeviceCounters> {
        Vec::new()
    }
}

/// What a device has counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceCounters {
    /// The device's name.
    pub device: String,
    /// Names, as drivers give them in `/sys/class/infiniband/*/ports/*/hw_counters`,
    /// and values.
    pub counters: Vec<(&'static str, u64)>,
}

/// A listening address. Dropping it stops the listening; connections live on.
pub trait Listener: Send + fmt::Debug {
    /// Where it listens: with the port that was chosen, if it was 0.
    fn local_addr(&self) -> SocketAddr;
}

/// One adapter, shared by all reactors.
pub trait Device: Send + Sync + fmt::Debug {
    /// Its name: "rxe0", "mlx5_0".
    fn name(&self) -> &str;

    /// The same number for the same device, another for any other, a re-plugged
    /// one included.
    fn id(&self) -> u64;

    /// The same adapter with a protection domain of its own: what is registered with the
    /// result can be reached by queue pairs of endpoints that are opened on it, and by no
    /// others. A host has one for each association, so that a target can use its own
    /// keys only.
    ///
    /// # Errors
    /// The device has no more domains.
    fn isolated(self: Arc<Self>) -> Result<Arc<dyn Device>, FabricError>;

    /// Pins and registers the whole of `mapping`, until the region is dropped.
    ///
    /// # Errors
    /// The memory cannot be locked; the error says how much is allowed.
    fn register(&self, mapping: Arc<Mapping>, access: Access) -> Result<Region, FabricError>;

    /// Opens an endpoint for the calling thread.
    ///
    /// # Errors
    /// The device cannot hold queues of that size.
    fn open(self: Arc<Self>, options: &EndpointOptions) -> Result<Box<dyn Endpoint>, FabricError>;
}

/// How large an endpoint's queues are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointOptions {
    /// Receives that can be posted at a time.
    pub receives: u32,
    /// Completions that can wait to be polled. The caller sees to it that there
    /// are never more: receives, plus signaled and failed send work.
    pub completions: u32,
    /// Queue pairs at a time.
    pub queue_pairs: u16,
}

/// What an endpoint's device can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointLimits {
    /// Send-queue work requests per queue pair.
    pub send_work: u32,
    /// RDMA READs outstanding per queue pair, as their sender.
    pub initiator_depth: u8,
    /// RDMA READs outstanding per queue pair, as their responder.
    pub responder_resources: u8,
    /// Whether [`Operation::SendWithInvalidate`](crate::Operation) works.
    pub send_with_invalidate: bool,
}

/// A queue pair whose packets of one length travel together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trains {
    /// Bytes of a full packet.
    pub packet_bytes: u32,
    /// The least time from a packet to its acknowledgement, once one was measured: how far away
    /// the peer is.
    pub round_trip: Option<Duration>,
}

/// One reactor's presence on a device.
pub trait Endpoint {
    /// The device it belongs to.
    fn device(&self) -> &Arc<dyn Device>;

    /// What the device can do.
    fn limits(&self) -> EndpointLimits;

    /// Adds receives to the shared receive queue.
    ///
    /// # Errors
    /// [`PostError::Full`] when more than [`EndpointOptions::receives`] would
    /// be posted, [`PostError::Broken`] when the device is gone.
    fn post_receives(&mut self, works: &[RecvWork]) -> Result<(), PostError>;

    /// Accepts: makes the queue pair and sends the REP. [`Event::Established`]
    /// follows when the peer is ready, though its first message may be polled
    /// before that.
    ///
    /// # Errors
    /// The peer has gone, or the device is full. The peer is refused.
    fn accept(
        &mut self,
        request: ConnRequest,
        options: &QpOptions,
        private_data: &[u8],
    ) -> Result<QpId, FabricError>;

    /// Begins to connect. [`Event::Established`], [`Event::Rejected`] or
    /// [`Event::ConnectFailed`] follows.
    ///
    /// # Errors
    /// Connecting cannot even begin.
    fn connect(
        &mut self,
        options: &ConnectOptions,
        private_data: &[u8],
    ) -> Result<QpId, FabricError>;

    /// Of a queue pair whose packets of one length travel together at the price of one. `None`:
    /// each packet has its own price, or no length has an advantage.
    fn trains(&mut self, _qp: QpId) -> Option<Trains> {
        None
    }

    /// What the packets of a queue pair carry, once both ends are known. `None`: it
    /// is unknown. This is a system call, so it is not for the data path.
    fn marked(&mut self, qp: QpId) -> Option<Marked>;

    /// Has a queue pair's packets, and its connection's, carry something else from
    /// now on; what `marking` leaves open stays as it is. `false` if that cannot be:
    /// with adapters it is settled when the queue pair begins.
    fn set_marking(&mut self, qp: QpId, marking: Marking) -> bool;

    /// Posts a chain of work on a queue pair, in order, whole or not at all.
    ///
    /// # Errors
    /// [`PostError`]; then none of the chain completes.
    fn post(&mut self, qp: QpId, chain: &[SendWork]) -> Result<(), PostError>;

    /// Takes completions, as many as `out` has room for, and says how many.
    /// Entries past that count are stale.
    ///
    /// An endpoint in software does its work in this call: an acknowledgement that is due
    /// may leave with the next call, so that a response can travel with it. A caller that
    /// stops polling calls [`arm`](Self::arm), which sends it.
    fn poll(&mut self, out: &mut [Completion]) -> usize;

    /// Takes connection events, appending to `out`.
    fn poll_events(&mut self, out: &mut Vec<Event>);

    /// Handles, on the calling thread, all messages about connections that had arrived at this
    /// machine before the call, whatever the provider's own threads do meanwhile. The next
    /// [`poll_events`](Self::poll_events) reports every connection whose end was among them, before any
    /// completion is polled. This is a system call, so it is not for the data path.
    fn drain_connections(&mut self);

    /// Ends the connection. All outstanding work completes, flushed if need be,
    /// then [`Event::Closed`] comes. Harmless on a queue pair that is closing.
    fn disconnect(&mut self, qp: QpId);

    /// Prepares to sleep: from now on a completion or event makes one of
    /// [`wait_fds`](Self::wait_fds) readable. Returns whether something is
    /// there already: then poll again instead of sleeping.
    ///
    /// # Errors
    /// The device is gone.
    fn arm(&mut self) -> Result<bool, FabricError>;

    /// The descriptors to watch for readability while asleep. Do not read them:
    /// [`poll`](Self::poll) and [`poll_events`](Self::poll_events) do.
    fn wait_fds(&self) -> &[RawFd];

    /// When to poll again though no descriptor is ready: the endpoint's own
    /// timers. `None`: no need.
    fn next_deadline(&self) -> Option<Instant>;
}
