use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::ScopedAddr;
use cairn_rdma::{Device, FabricError, ListenOptions, Listener, Provider, Sink};

use crate::cm::{Channel, Id, LISTENING};
use crate::devices::Devices;
use crate::explain;
use crate::library::Library;
use crate::listener::VerbsListener;
use crate::sys;
use cairn_base::wake::wait_readable;

/// Timeout of address resolution. The kernel sends three ARP requests, one each second.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(4);

/// RDMA provider for adapters and the kernel's software devices.
pub struct VerbsProvider {
    devices: Arc<Devices>,
}

impl fmt::Debug for VerbsProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsProvider").finish_non_exhaustive()
    }
}

impl VerbsProvider {
    /// Loads the libraries, and checks that the connection manager (rdma_ucm) is loaded.
    pub fn new() -> Result<Self, FabricError> {
        Self::over(Library::open()?)
    }

    /// Loads the libraries behind a layer that simulates `quirks` on each device.
    #[cfg(feature = "quirks")]
    pub fn with_quirks(quirks: crate::Quirks) -> Result<Self, FabricError> {
        Self::over(crate::quirks::layer::library(quirks)?)
    }

    fn over(library: &'static Library) -> Result<Self, FabricError> {
        Channel::new(library)?;
        Ok(Self {
            devices: Arc::new(Devices::new(library)),
        })
    }

    /// Checks that a listener could use this address and its device. The check binds the address
    /// briefly without listening, so no host can connect.
    pub fn check_free(&self, address: SocketAddr) -> Result<(), FabricError> {
        let channel = Channel::new(self.devices.library())?;
        let mut id = Id::new(&channel, LISTENING)?;
        id.bind(address)?;
        if id.device().is_some() {
            self.devices.of(&id)?;
        }
        Ok(())
    }
}

impl Provider for VerbsProvider {
    fn name(&self) -> &'static str {
        explain::PROVIDER
    }

    fn listen(
        &self,
        options: &ListenOptions,
        sink: Sink,
    ) -> Result<Box<dyn Listener>, FabricError> {
        let listener = VerbsListener::start(Arc::clone(&self.devices), options, sink)?;
        Ok(Box::new(listener))
    }

    fn device_for(
        &self,
        remote: SocketAddr,
        local: Option<IpAddr>,
    ) -> Result<Arc<dyn Device>, FabricError> {
        let id = resolve(self.devices.library(), remote, local)?;
        Ok(self.devices.of(&id)?)
    }
}

fn resolve(
    library: &'static Library,
    remote: SocketAddr,
    local: Option<IpAddr>,
) -> Result<Id, FabricError> {
    let channel = Channel::new(library)?;
    let mut id = Id::new(&channel, 0)?;
    let scope_id = ScopedAddr::from(remote).scope_id();
    let local = local.map(|ip| ScopedAddr::new(ip, scope_id).at(0));
    id.resolve_addr(local, remote, RESOLVE_TIMEOUT.as_millis() as i32)
        .map_err(|error| explain::no_route(remote, error))?;
    let deadline = Instant::now() + RESOLVE_TIMEOUT;
    loop {
        let event = channel
            .next_event()
            .map_err(|error| explain::os("rdma_get_cm_event", error))?;
        let failed = |errno| {
            Err(explain::no_route(
                remote,
                std::io::Error::from_raw_os_error(errno),
            ))
        };
        match event {
            Some(event) if event.kind == sys::RDMA_CM_EVENT_ADDR_RESOLVED => return Ok(id),
            Some(event) => return failed(-event.status),
            None => {}
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return failed(libc::ETIMEDOUT);
        }
        wait_readable([channel.fd()], Some(left));
    }
}
