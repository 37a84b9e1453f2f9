//! Provider `soft`: RoCE v2 over UDP sockets, and RoCE v1 over packet sockets.
//!
//! A device is one local IP address and RoCE version; it exclusively uses UDP port 4791 or the RoCE
//! v1 frames of the address.

mod device;
mod endpoint;
mod listener;
mod manager;
mod relay;
mod slots;

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use cairn_base::{Clock, ScopedAddr};
use cairn_rdma::{
    Device, DeviceCounters, FabricError, ListenOptions, Listener, Provider, Roce, Sink,
};

use crate::phy::Network;
use crate::phy::capture::Capture;
use crate::phy::neighbour;
use crate::phy::send::Sender;
use crate::phy::socket::source_for;
use cairn_base::entropy::Entropy;
use cairn_roce_proto::counters::Counters;

use device::SoftDevice;
use listener::{ListenerState, SoftListener};
use manager::Rest;

const EPHEMERAL_PORTS: std::ops::RangeInclusive<u16> = 49152..=65535;

/// Options of the provider.
#[derive(Debug, Clone)]
pub struct SoftOptions {
    /// Capture file of all packets, if any.
    pub capture: Option<Arc<Capture>>,
    /// True if congestion notifications reduce the sending rate.
    pub congestion_control: bool,
    /// True if packets of a flow are sent as super-packets, split by the system or the adapter.
    pub segmentation_offload: bool,
    /// Network of the provider. A network in memory has no thread, so the owner must call
    /// [`Soft::step`].
    pub network: Network,
    /// Clock of timers.
    pub clock: Clock,
    /// Source of unpredictable numbers.
    pub entropy: Entropy,
}

impl Default for SoftOptions {
    fn default() -> Self {
        Self {
            capture: None,
            congestion_control: true,
            segmentation_offload: true,
            network: Network::default(),
            clock: Clock::default(),
            entropy: Entropy::default(),
        }
    }
}

impl SoftOptions {
    fn sender(&self, local: ScopedAddr) -> Sender {
        Sender::new(
            &self.network,
            local,
            self.capture.clone(),
            self.segmentation_offload,
        )
    }
}

/// Provider of RoCE in user space. Clones share the state.
#[derive(Debug, Clone)]
pub struct Soft {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: SoftOptions,
    devices: Mutex<BTreeMap<(ScopedAddr, Roce), Weak<SoftDevice>>>,
    listeners: Mutex<HashMap<(SocketAddr, Roce), Arc<ListenerState>>>,
    next_device: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Soft {
    fn default() -> Self {
        Self::new(SoftOptions::default())
    }
}

impl Soft {
    /// Creates a provider, which opens devices on demand.
    #[must_use]
    pub fn new(options: SoftOptions) -> Self {
        Self {
            shared: Arc::new(Shared {
                options,
                devices: Mutex::default(),
                listeners: Mutex::default(),
                next_device: AtomicU64::new(1),
            }),
        }
    }
}

impl Soft {
    /// Returns each open device's name and counters.
    #[must_use]
    pub fn counters(&self) -> Vec<(String, Counters)> {
        let devices: Vec<_> = lock(&self.shared.devices)
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        let counted = |device: Arc<SoftDevice>| (device.name().to_owned(), device.counters());
        devices.into_iter().map(counted).collect()
    }

    /// Returns the number of connections of all open devices, in any state.
    #[must_use]
    pub fn connections(&self) -> usize {
        let devices: Vec<_> = lock(&self.shared.devices)
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        devices
            .iter()
            .map(|device| device.manager.connections())
            .sum()
    }

    /// Runs the due work of connection management on networks without a thread. Returns the time of
    /// the next call, if any.
    #[must_use]
    pub fn step(&self) -> Option<Instant> {
        let devices: Vec<_> = lock(&self.shared.devices).values().cloned().collect();
        let step = |weak: Weak<SoftDevice>| {
            // `turn` may drop the last reference to the device, so this clone keeps the manager
            // alive.
            let manager = Arc::clone(&weak.upgrade()?.manager);
            loop {
                if let Rest::Until(deadline) = manager.turn(&self.shared, &weak) {
                    return deadline;
                }
            }
        };
        devices.into_iter().filter_map(step).min()
    }
}

impl Shared {
    fn device_at(
        self: &Arc<Self>,
        address: ScopedAddr,
        roce: Roce,
    ) -> Result<Arc<SoftDevice>, FabricError> {
        let mut devices = lock(&self.devices);
        if let Some(device) = devices.get(&(address, roce)).and_then(Weak::upgrade) {
            return Ok(device);
        }
        let id = self.next_device.fetch_add(1, Ordering::Relaxed);
        let device = SoftDevice::open(self, address, roce, id)?;
        devices.insert((address, roce), Arc::downgrade(&device));
        Ok(device)
    }

    fn has_device(&self, address: ScopedAddr, roce: Roce) -> bool {
        let devices = lock(&self.devices);
        devices
            .get(&(address, roce))
            .is_some_and(|device| device.strong_count() > 0)
    }

    fn listener_at(&self, address: SocketAddr, roce: Roce) -> Option<Arc<ListenerState>> {
        let listeners = lock(&self.listeners);
        let any: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        let exact = listeners.get(&(address, roce));
        exact
            .or_else(|| listeners.get(&(SocketAddr::new(any, address.port()), roce)))
            .cloned()
    }
}

impl Provider for Soft {
    fn name(&self) -> &'static str {
        "soft"
    }

    fn counters(&self) -> Vec<DeviceCounters> {
        let of_device = |(device, counters): (String, Counters)| DeviceCounters {
            device,
            counters: counters.iter().collect(),
        };
        self.counters().into_iter().map(of_device).collect()
    }

    fn listen(
        &self,
        options: &ListenOptions,
        sink: Sink,
    ) -> Result<Box<dyn Listener>, FabricError> {
        let own = self.shared.options.network.roce();
        let roce = options.roce.unwrap_or(own);
        let device = self.shared.device_at(options.address.into(), roce)?;
        let mut listeners = lock(&self.shared.listeners);
        let mut address = options.address;
        if address.port() == 0 {
            let free = EPHEMERAL_PORTS
                .map(|port| ScopedAddr::from(address).at(port))
                .find(|at| !listeners.contains_key(&(*at, roce)));
            address = free.ok_or(FabricError::Limit {
                what: "ports",
                limit: EPHEMERAL_PORTS.count() as u64,
            })?;
        }
        if listeners.contains_key(&(address, roce)) {
            return Err(FabricError::AddressInUse { address });
        }
        let listening = Arc::new(ListenerState {
            sink,
            backlog: options.backlog,
            pkey: options.pkey,
            waiting: AtomicU32::new(0),
            peer_limit: Mutex::default(),
        });
        listeners.insert((address, roce), listening);
        Ok(Box::new(SoftListener {
            shared: Arc::clone(&self.shared),
            device,
            address,
        }))
    }

    fn device_for(
        &self,
        remote: SocketAddr,
        local: Option<IpAddr>,
    ) -> Result<Arc<dyn Device>, FabricError> {
        let roce = self.shared.options.network.roce();
        let peer = ScopedAddr::from(remote);
        if let Some(local) = local {
            // A link-local peer determines the interface of the local address.
            let local = ScopedAddr::new(local, peer.scope_id());
            return Ok(self.shared.device_at(local, roce)?);
        }
        if self.shared.has_device(peer, roce) {
            return Ok(self.shared.device_at(peer, roce)?);
        }
        if matches!(self.shared.options.network.good(), Network::Ethernet { .. }) {
            neighbour::solicit(peer);
        }
        let local = source_for(remote).map_err(|source| FabricError::Os {
            call: "looking up the route",
            source,
        })?;
        // A peer on this machine uses the RoCE port of its address, so this end needs another
        // loopback address, which IPv6 does not have.
        let same_machine = local == peer || local.ip().is_loopback();
        if !same_machine || local.ip().is_ipv6() {
            return Ok(self.shared.device_at(local, roce)?);
        }
        let mut result = Err(FabricError::Gone("loopback address"));
        for _ in 0..8 {
            let address = device::loopback_address(&self.shared.options.entropy);
            result = self.shared.device_at(address.into(), roce);
            if result.is_ok() {
                break;
            }
        }
        Ok(result?)
    }
}
