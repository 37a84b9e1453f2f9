//! A host's adapter: user-space RoCE, but whoever sleeps on it lets the world go on.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_rdma::{
    Access, Completion, ConnRequest, ConnectOptions, Device, Endpoint, EndpointLimits,
    EndpointOptions, Event, FabricError, Mapping, PostError, QpId, QpOptions, RecvWork, Region,
    SendWork,
};

use crate::world;

/// The longest sleep: a host has duties of its own, of which its endpoint knows
/// nothing.
const NAP: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct SleeperDevice(pub(crate) Arc<dyn Device>);

impl Device for SleeperDevice {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn id(&self) -> u64 {
        self.0.id()
    }

    fn register(&self, mapping: Arc<Mapping>, access: Access) -> Result<Region, FabricError> {
        self.0.register(mapping, access)
    }

    fn open(self: Arc<Self>, options: &EndpointOptions) -> Result<Box<dyn Endpoint>, FabricError> {
        Ok(Box::new(Sleeper {
            endpoint: Arc::clone(&self.0).open(options)?,
            number: world::with(world::World::add_host),
        }))
    }
}

struct Sleeper {
    endpoint: Box<dyn Endpoint>,
    number: u64,
}

impl Sleeper {
    fn tell_deadline(&self) {
        let deadline = self.endpoint.next_deadline();
        world::with(|world| world.set_deadline(self.number, deadline));
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        world::with(|world| world.set_deadline(self.number, None));
    }
}

impl Endpoint for Sleeper {
    fn device(&self) -> &Arc<dyn Device> {
        self.endpoint.device()
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

    fn post(&mut self, qp: QpId, chain: &[SendWork]) -> Result<(), PostError> {
        self.endpoint.post(qp, chain)
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        let count = self.endpoint.poll(out);
        self.tell_deadline();
        count
    }

    fn poll_events(&mut self, out: &mut Vec<Event>) {
        self.endpoint.poll_events(out);
    }

    fn disconnect(&mut self, qp: QpId) {
        self.endpoint.disconnect(qp);
    }

    /// There is always something: the world has gone on.
    fn arm(&mut self) -> Result<bool, FabricError> {
        if !self.endpoint.arm()? {
            self.tell_deadline();
            world::with(|world| world.advance(world.clock().now() + NAP));
        }
        Ok(true)
    }

    fn wait_fds(&self) -> &[RawFd] {
        self.endpoint.wait_fds()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.endpoint.next_deadline()
    }
}
