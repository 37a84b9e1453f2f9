//! RDMA provider inside one process, for tests without a network.
//!
//! The provider enforces the contract of [`Endpoint`]: it checks each key, range and access right,
//! panics if a completion queue overruns, and pads private data like the IB connection manager.
//! Each IP address is a separate device.

mod endpoint;
#[cfg(all(test, cairn_loom))]
mod loom_models;
mod network;
mod posted;
mod queues;
#[cfg(all(test, not(cairn_loom)))]
mod tests;
mod withheld;

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError};

use cairn_base::Mapping;
use cairn_base::sync::{Mutex, MutexGuard};

use crate::access::Access;
use crate::connection::{ConnHandle, ListenOptions, PrivateData};
use crate::error::FabricError;
use crate::marking::Marking;
use crate::memory::Region;
use crate::partition::PKey;
use crate::provider::{Device, Endpoint, EndpointOptions, Listener, ListenerEvent, Provider, Sink};

use endpoint::LoopbackEndpoint;
use network::{Key, Network, QpAddress, RegionEntry, RemoteKey};

pub use posted::Posted;
pub use withheld::Withheld;

/// Maximum private data in bytes (IBTA 12.6). A REQ has 92, of which the RDMA-CM header takes 36.
const REQ_PRIVATE_DATA: usize = 56;
const REP_PRIVATE_DATA: usize = 196;
const REJ_PRIVATE_DATA: usize = 148;

const EPHEMERAL_PORTS: std::ops::RangeInclusive<u16> = 49152..=65535;

/// Loopback provider. Clones share the network.
#[derive(Debug, Clone, Default)]
pub struct Loopback {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    network: Mutex<Network>,
    listeners: Mutex<HashMap<SocketAddr, Arc<Listening>>>,
    // Only numbers are stored, because devices hold references to this structure.
    devices: Mutex<HashMap<IpAddr, Numbers>>,
}

#[derive(Clone, Copy)]
struct Numbers {
    id: u64,
    domain: u64,
}

struct Listening {
    sink: Sink,
    pkey: PKey,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("loopback network")
    }
}

impl Shared {
    fn network(&self) -> MutexGuard<'_, Network> {
        self.network.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listeners(&self) -> MutexGuard<'_, HashMap<SocketAddr, Arc<Listening>>> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn listening_at(&self, address: SocketAddr) -> Option<Arc<Listening>> {
        let listeners = self.listeners();
        let any = |ip: IpAddr| listeners.get(&SocketAddr::new(ip, address.port())).cloned();
        listeners
            .get(&address)
            .cloned()
            .or_else(|| any(std::net::Ipv4Addr::UNSPECIFIED.into()))
            .or_else(|| any(std::net::Ipv6Addr::UNSPECIFIED.into()))
    }

    fn device_at(self: &Arc<Self>, address: IpAddr) -> Arc<LoopbackDevice> {
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        let Numbers { id, domain } = *devices.entry(address).or_insert_with(|| {
            let mut network = self.network();
            let (id, domain) = (network.add_device(), network.add_domain());
            Numbers { id, domain }
        });
        Arc::new(LoopbackDevice {
            shared: Arc::clone(self),
            name: format!("loopback-{address}"),
            id,
            domain,
            address,
        })
    }
}

impl Loopback {
    /// Creates a network without devices.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes the device with `address`.
    ///
    /// Endpoints of the device receive [`Event::DeviceRemoved`](crate::Event::DeviceRemoved). Their
    /// peers receive a transport error, and listeners receive [`ListenerEvent::Down`].
    pub fn unplug(&self, address: IpAddr) {
        let device = {
            let mut devices = self
                .shared
                .devices
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            devices.remove(&address)
        };
        if let Some(device) = device {
            self.shared.network().remove_device(device.id);
        }
        self.notify_listeners(address, || ListenerEvent::Down {
            reason: format!("the device of {address} was removed"),
        });
    }

    /// Adds a device with `address` after [`Self::unplug`], without the old registrations.
    pub fn plug(&self, address: IpAddr) {
        self.shared.device_at(address);
        self.notify_listeners(address, || ListenerEvent::Up);
    }

    /// Returns the work counters of the device with `address`.
    #[must_use]
    pub fn posted(&self, address: IpAddr) -> Posted {
        let device = self.shared.device_at(address).id;
        self.shared.network().posted(device)
    }

    /// Makes the device with `address` delay one kind of its peers' work requests.
    pub fn withhold(&self, address: IpAddr, withheld: Withheld) {
        let device = self.shared.device_at(address).id;
        self.shared.network().withhold(device, withheld);
    }

    /// Executes the oldest delayed work request of one queue pair, selected by `number` modulo the
    /// count of queue pairs with delayed work. Returns false if no work is delayed.
    pub fn release_one(&self, address: IpAddr, number: usize) -> bool {
        let device = self.shared.device_at(address).id;
        self.shared.network().release_one(device, number)
    }

    /// Executes all delayed work requests, and ends the delay.
    pub fn release_all(&self, address: IpAddr) {
        let device = self.shared.device_at(address).id;
        self.shared.network().release_all(device);
    }

    fn notify_listeners(&self, address: IpAddr, event: impl Fn() -> ListenerEvent) {
        let there: Vec<_> = self
            .shared
            .listeners()
            .iter()
            .filter(|(at, _)| at.ip() == address)
            .map(|(_, listening)| Arc::clone(listening))
            .collect();
        for listening in there {
            (listening.sink)(event());
        }
    }
}

impl Provider for Loopback {
    fn name(&self) -> &'static str {
        "loopback"
    }

    fn listen(
        &self,
        options: &ListenOptions,
        sink: Sink,
    ) -> Result<Box<dyn Listener>, FabricError> {
        let mut listeners = self.shared.listeners();
        let mut address = options.address;
        if address.port() == 0 {
            let free = EPHEMERAL_PORTS
                .map(|port| SocketAddr::new(address.ip(), port))
                .find(|at| !listeners.contains_key(at));
            address = free.ok_or(FabricError::Limit {
                what: "ports",
                limit: 16384,
            })?;
        }
        if listeners.contains_key(&address) {
            return Err(FabricError::AddressInUse { address });
        }
        let pkey = options.pkey;
        listeners.insert(address, Arc::new(Listening { sink, pkey }));
        Ok(Box::new(LoopbackListener {
            shared: Arc::clone(&self.shared),
            address,
        }))
    }

    fn device_for(
        &self,
        remote: SocketAddr,
        local: Option<IpAddr>,
    ) -> Result<Arc<dyn Device>, FabricError> {
        Ok(self.shared.device_at(local.unwrap_or_else(|| remote.ip())))
    }
}

struct LoopbackListener {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl fmt::Debug for LoopbackListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "loopback listener at {}", self.address)
    }
}

impl Listener for LoopbackListener {
    fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for LoopbackListener {
    fn drop(&mut self) {
        self.shared.listeners().remove(&self.address);
    }
}

struct LoopbackDevice {
    shared: Arc<Shared>,
    name: String,
    id: u64,
    domain: u64,
    address: IpAddr,
}

impl fmt::Debug for LoopbackDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Device for LoopbackDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn isolated(self: Arc<Self>) -> Result<Arc<dyn Device>, FabricError> {
        let domain = self.shared.network().add_domain();
        Ok(Arc::new(Self {
            shared: Arc::clone(&self.shared),
            name: self.name.clone(),
            id: self.id,
            domain,
            address: self.address,
        }))
    }

    fn register(&self, mapping: Arc<Mapping>, access: Access) -> Result<Region, FabricError> {
        let entry = RegionEntry {
            domain: self.domain,
            mapping: Arc::clone(&mapping),
            access,
        };
        let (key, remote) = self.shared.network().register(entry);
        let registration = Registration {
            shared: Arc::clone(&self.shared),
            key,
            remote,
        };
        let rkey = remote.map(|remote| remote.0);
        Ok(Region::new(mapping, key.0, rkey, Box::new(registration)))
    }

    fn open(self: Arc<Self>, options: &EndpointOptions) -> Result<Box<dyn Endpoint>, FabricError> {
        Ok(Box::new(LoopbackEndpoint::open(self, options)?))
    }
}

struct Registration {
    shared: Arc<Shared>,
    key: Key,
    remote: Option<RemoteKey>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.shared.network().deregister(self.key, self.remote);
    }
}

struct LoopbackRequest {
    shared: Arc<Shared>,
    from: QpAddress,
    answered: bool,
}

impl fmt::Debug for LoopbackRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request from {:?}", self.from)
    }
}

impl LoopbackRequest {
    fn refuse(&mut self, private_data: &[u8]) {
        const REASON_CONSUMER: u16 = 28;
        self.answered = true;
        let data = padded::<REJ_PRIVATE_DATA>(private_data);
        self.shared
            .network()
            .refuse(self.from, data, REASON_CONSUMER);
    }
}

impl ConnHandle for LoopbackRequest {
    fn mark(&mut self, _: Marking) {}

    fn reject(mut self: Box<Self>, private_data: &[u8]) {
        self.refuse(private_data);
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

impl Drop for LoopbackRequest {
    fn drop(&mut self) {
        if !self.answered {
            self.refuse(&[]);
        }
    }
}

fn padded<const N: usize>(bytes: &[u8]) -> PrivateData {
    let mut message = [0; N];
    let length = bytes.len().min(N);
    message[..length].copy_from_slice(&bytes[..length]);
    PrivateData::new(&message)
}
