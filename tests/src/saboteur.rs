//! Provider that makes a target panic.

use std::any::Any;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use cairn_base::Mapping;
use cairn_rdma::{
    Access, Completion, ConnHandle, ConnRequest, ConnectOptions, Device, DeviceCounters,
    DisconnectReason, Endpoint, EndpointLimits, EndpointOptions, Event, FabricError, ListenOptions,
    Listener, ListenerEvent, Marked, Marking, Operation, PostError, Provider, QpId, QpOptions,
    RecvWork, Region, SendWork, Sink, Trains,
};

pub const MESSAGE: &str = "an invariant is broken on purpose";

/// Provider that causes panics in a target; hosts use the wrapped provider.
#[derive(Debug, Clone)]
pub struct Saboteur {
    network: Arc<dyn Provider>,
    fuse: Arc<Fuse>,
}

#[derive(Debug)]
struct Fuse {
    length: u64,
    reads: AtomicUsize,
    requests: AtomicUsize,
    pages: AtomicUsize,
    connects: AtomicUsize,
    refusals: AtomicUsize,
    own_receives: AtomicBool,
}

/// Panics and decrements `times`, unless `times` is 0.
pub fn blow(times: &AtomicUsize) {
    let order = Ordering::Relaxed;
    let less = |times: usize| times.checked_sub(1);
    assert!(times.fetch_update(order, order, less).is_err(), "{MESSAGE}");
}

impl Fuse {
    /// Panics for an RDMA WRITE of `length` bytes if [`Saboteur::arm`] requested it. True if the
    /// device must refuse the WRITE.
    fn look_at(&self, chain: &[SendWork]) -> bool {
        let is_it = |work: &SendWork| {
            matches!(work.op, Operation::Write(_)) && work.sges.total_len() == self.length
        };
        if !chain.iter().any(is_it) {
            return false;
        }
        blow(&self.reads);
        self.refusals.swap(0, Ordering::Relaxed) != 0
    }
}

impl Saboteur {
    /// Wraps a provider. [`arm`](Self::arm) and [`arm_refusal`](Self::arm_refusal) affect only NVMe
    /// reads of `length` bytes, recognized by their RDMA WRITE.
    #[must_use]
    pub fn new(network: Arc<dyn Provider>, length: u64) -> Self {
        let fuse = Arc::new(Fuse {
            length,
            reads: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            pages: AtomicUsize::new(0),
            connects: AtomicUsize::new(0),
            refusals: AtomicUsize::new(0),
            own_receives: AtomicBool::new(false),
        });
        Self { network, fuse }
    }

    /// Makes the target panic at the next `times` reads, each of which ends a reactor.
    pub fn arm(&self, times: usize) {
        self.fuse.reads.store(times, Ordering::Relaxed);
    }

    pub fn arm_refusal(&self) {
        self.fuse.refusals.store(1, Ordering::Relaxed);
    }

    /// Makes endpoints report that they lack shared receive queues.
    pub fn divide_receives(&self) {
        self.fuse.own_receives.store(true, Ordering::Relaxed);
    }

    pub fn arm_request(&self) {
        self.fuse.requests.store(1, Ordering::Relaxed);
    }

    /// Makes the target panic at the next Connect, which ends a reactor.
    pub fn arm_connect(&self) {
        self.fuse.connects.store(1, Ordering::Relaxed);
    }

    pub fn arm_metrics(&self) {
        self.fuse.pages.store(1, Ordering::Relaxed);
    }
}

impl Provider for Saboteur {
    fn name(&self) -> &'static str {
        self.network.name()
    }

    fn listen(
        &self,
        options: &ListenOptions,
        sink: Sink,
    ) -> Result<Box<dyn Listener>, FabricError> {
        let fuse = Arc::clone(&self.fuse);
        let sink = Box::new(move |event| {
            sink(match event {
                ListenerEvent::Request(mut request) => {
                    request.device = Arc::new(Trapped {
                        device: request.device,
                        fuse: Arc::clone(&fuse),
                    });
                    request.handle = Box::new(TrappedHandle {
                        handle: request.handle,
                        fuse: Arc::clone(&fuse),
                    });
                    ListenerEvent::Request(request)
                }
                other => other,
            });
        });
        self.network.listen(options, sink)
    }

    fn device_for(
        &self,
        remote: SocketAddr,
        local: Option<IpAddr>,
    ) -> Result<Arc<dyn Device>, FabricError> {
        self.network.device_for(remote, local)
    }

    fn counters(&self) -> Vec<DeviceCounters> {
        blow(&self.fuse.pages);
        self.network.counters()
    }
}

#[derive(Debug)]
struct TrappedHandle {
    handle: Box<dyn ConnHandle>,
    fuse: Arc<Fuse>,
}

impl ConnHandle for TrappedHandle {
    fn mark(&mut self, marking: Marking) {
        blow(&self.fuse.requests);
        self.handle.mark(marking);
    }

    fn reject(self: Box<Self>, private_data: &[u8]) {
        self.handle.reject(private_data);
    }

    fn ignore(self: Box<Self>) {
        self.handle.ignore();
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self.handle.into_any()
    }
}

struct Trapped {
    device: Arc<dyn Device>,
    fuse: Arc<Fuse>,
}

impl fmt::Debug for Trapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.device.fmt(f)
    }
}

impl Device for Trapped {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn id(&self) -> u64 {
        self.device.id()
    }

    fn isolated(self: Arc<Self>) -> Result<Arc<dyn Device>, FabricError> {
        Arc::clone(&self.device).isolated()
    }

    fn register(&self, mapping: Arc<Mapping>, access: Access) -> Result<Region, FabricError> {
        self.device.register(mapping, access)
    }

    fn open(self: Arc<Self>, options: &EndpointOptions) -> Result<Box<dyn Endpoint>, FabricError> {
        let endpoint = Arc::clone(&self.device).open(options)?;
        let fuse = Arc::clone(&self.fuse);
        Ok(Box::new(Trap {
            endpoint,
            fuse,
            device: self,
            events: Vec::new(),
        }))
    }
}

struct Trap {
    endpoint: Box<dyn Endpoint>,
    fuse: Arc<Fuse>,
    device: Arc<dyn Device>,
    events: Vec<Event>,
}

impl Endpoint for Trap {
    fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    fn limits(&self) -> EndpointLimits {
        let limits = self.endpoint.limits();
        EndpointLimits {
            shared_receives: limits.shared_receives
                && !self.fuse.own_receives.load(Ordering::Relaxed),
            ..limits
        }
    }

    fn post_receives(&mut self, works: &[RecvWork]) -> Result<(), PostError> {
        self.endpoint.post_receives(works)
    }

    fn accept(
        &mut self,
        request: ConnRequest,
        options: &QpOptions,
        private_data: &[u8],
    ) -> Result<QpId, FabricError> {
        self.endpoint.accept(request, options, private_data)
    }

    fn connect(
        &mut self,
        options: &ConnectOptions,
        private_data: &[u8],
    ) -> Result<QpId, FabricError> {
        self.endpoint.connect(options, private_data)
    }

    fn trains(&mut self, qp: QpId) -> Option<Trains> {
        self.endpoint.trains(qp)
    }

    fn marked(&mut self, qp: QpId) -> Option<Marked> {
        blow(&self.fuse.connects);
        self.endpoint.marked(qp)
    }

    fn set_marking(&mut self, qp: QpId, marking: Marking) -> bool {
        self.endpoint.set_marking(qp, marking)
    }

    fn post(&mut self, qp: QpId, chain: &[SendWork]) -> Result<(), PostError> {
        if self.fuse.look_at(chain) {
            let reason = DisconnectReason::DeviceFault;
            self.events.push(Event::Disconnected { qp, reason });
            return Err(PostError::Broken);
        }
        self.endpoint.post(qp, chain)
    }

    fn drain_connections(&mut self) {
        self.endpoint.drain_connections();
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.endpoint.poll(out)
    }

    fn poll_events(&mut self, out: &mut Vec<Event>) {
        out.append(&mut self.events);
        self.endpoint.poll_events(out);
    }

    fn disconnect(&mut self, qp: QpId) {
        self.endpoint.disconnect(qp);
    }

    fn arm(&mut self) -> Result<bool, FabricError> {
        self.endpoint.arm()
    }

    fn wait_fds(&self) -> &[RawFd] {
        self.endpoint.wait_fds()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.endpoint.next_deadline()
    }
}
