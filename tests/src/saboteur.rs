//! A network on which a target's reactors panic: as they answer a read of a certain length.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use cairn_rdma::{
    Access, Completion, ConnRequest, ConnectOptions, Device, Endpoint, EndpointLimits,
    EndpointOptions, Event, FabricError, ListenOptions, Listener, ListenerEvent, Mapping, Marked,
    Marking, Operation, PostError, Provider, QpId, QpOptions, RecvWork, Region, SendWork, Sink,
};

/// What its panics say.
pub const MESSAGE: &str = "this read breaks an invariant";

/// For the target; hosts use the network inside.
#[derive(Debug, Clone)]
pub struct Saboteur {
    network: Arc<dyn Provider>,
    fuse: Arc<Fuse>,
}

/// When to panic.
#[derive(Debug)]
struct Fuse {
    /// The bytes of an RDMA WRITE that must not be posted.
    length: u64,
    /// How many times more.
    times: AtomicUsize,
}

impl Fuse {
    fn look_at(&self, chain: &[SendWork]) {
        let is_it = |work: &SendWork| {
            matches!(work.op, Operation::Write(_)) && work.sges.total_len() == self.length
        };
        let less = |times: usize| times.checked_sub(1);
        let order = Ordering::Relaxed;
        if chain.iter().any(is_it) && self.times.fetch_update(order, order, less).is_ok() {
            panic!("{MESSAGE}: {} bytes", self.length);
        }
    }
}

impl Saboteur {
    /// The network, whose targets panic at a read of `length` bytes: not yet.
    #[must_use]
    pub fn new(network: Arc<dyn Provider>, length: u64) -> Self {
        let fuse = Arc::new(Fuse {
            length,
            times: AtomicUsize::new(0),
        });
        Self { network, fuse }
    }

    /// From now on, so many times.
    pub fn arm(&self, times: usize) {
        self.fuse.times.store(times, Ordering::Relaxed);
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
}

/// A device whose endpoints panic.
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
        }))
    }
}

struct Trap {
    endpoint: Box<dyn Endpoint>,
    fuse: Arc<Fuse>,
    device: Arc<dyn Device>,
}

impl Endpoint for Trap {
    fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    fn limits(&self) -> EndpointLimits {
        self.endpoint.limits()
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

    fn marked(&mut self, qp: QpId) -> Option<Marked> {
        self.endpoint.marked(qp)
    }

    fn remark(&mut self, qp: QpId, marking: Marking) -> bool {
        self.endpoint.remark(qp, marking)
    }

    fn post(&mut self, qp: QpId, chain: &[SendWork]) -> Result<(), PostError> {
        self.fuse.look_at(chain);
        self.endpoint.post(qp, chain)
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.endpoint.poll(out)
    }

    fn poll_events(&mut self, out: &mut Vec<Event>) {
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
