//! The provider `soft`: RoCE v2 over UDP sockets, for any machine, and RoCE v1
//! over packet sockets, for those that still need it.
//!
//! Each local IP address is a device, or two where both versions are spoken, and has UDP port 4791, or the frames of
//! RoCE v1, to itself: one socket for connection management, served by a thread
//! that sleeps unless there is something to manage, and one for each endpoint,
//! which the endpoint's own thread reads. The kernel hands each packet to the
//! right one by the top bits of its queue pair number.

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

use cairn_rdma::{
    Clock, Device, DeviceCounters, FabricError, ListenOptions, Listener, Provider, Roce, Sink,
};

use crate::phy::Network;
use crate::phy::capture::Capture;
use crate::phy::neighbour;
use crate::phy::send::Sender;
use crate::phy::socket::source_for;
use cairn_rdma::entropy::Entropy;
use cairn_roce_proto::counters::Counters;

use device::SoftDevice;
use listener::{ListenerState, SoftListener};
use manager::Rest;

/// Ports chosen for a listener that asked for port 0.
const EPHEMERAL_PORTS: std::ops::RangeInclusive<u16> = 49152..=65535;

/// Options of a provider.
#[derive(Debug, Clone)]
pub struct SoftOptions {
    /// Write what is sent and received to a file.
    pub capture: Option<Arc<Capture>>,
    /// Congestion notifications slow senders down.
    pub congestion_control: bool,
    /// Packets of one flow leave in super-packets, which the system or the card cuts.
    pub segmentation_offload: bool,
    /// The network to use. On a wire in memory the provider starts no thread: the
    /// wire's owner calls [`Soft::step`].
    pub network: Network,
    /// Its clock.
    pub clock: Clock,
    /// The source of numbers that peers must not predict.
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
    /// A sender of an endpoint.
    fn sender(&self) -> Sender {
        Sender::new(
            &self.network,
            self.capture.clone(),
            self.segmentation_offload,
        )
    }
}

/// The provider. Clones are the same.
#[derive(Debug, Clone)]
pub struct Soft {
    shared: Arc<Shared>,
}

/// What every handle of one provider holds.
#[derive(Debug)]
struct Shared {
    options: SoftOptions,
    devices: Mutex<BTreeMap<(IpAddr, Roce), Weak<SoftDevice>>>,
    listeners: Mutex<HashMap<(SocketAddr, Roce), Arc<ListenerState>>>,
    next_device: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these locks guard is whole after any panic: each change is one step (an insertion,
    // a flag, a sum). Connection management is not: it is made anew.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Soft {
    fn default() -> Self {
        Self::new(SoftOptions::default())
    }
}

impl Soft {
    /// A provider. It opens devices on demand.
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
    /// The devices that are open, by name, and what their endpoints have counted.
    #[must_use]
    pub fn counters(&self) -> Vec<(String, Counters)> {
        let devices: Vec<_> = lock(&self.shared.devices)
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        let counted = |device: Arc<SoftDevice>| (device.name().to_owned(), device.counters());
        devices.into_iter().map(counted).collect()
    }

    /// Connections of all open devices, those that begin or end included.
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

    /// Does the connection management that is due, where no thread does it, and
    /// returns when to call again if nothing happens before.
    #[must_use]
    pub fn step(&self) -> Option<Instant> {
        let devices: Vec<_> = lock(&self.shared.devices).values().cloned().collect();
        let step = |weak: Weak<SoftDevice>| {
            // A turn may release the last reference to a device.
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
    /// The device of `address`, opened if need be.
    fn device_at(
        self: &Arc<Self>,
        address: IpAddr,
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

    fn has_device(&self, address: IpAddr, roce: Roce) -> bool {
        let devices = lock(&self.devices);
        devices
            .get(&(address, roce))
            .is_some_and(|device| device.strong_count() > 0)
    }

    /// The listener at `address`, or at its port on all addresses.
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
        let device = self.shared.device_at(options.address.ip(), roce)?;
        let mut listeners = lock(&self.shared.listeners);
        let mut address = options.address;
        if address.port() == 0 {
            let free = EPHEMERAL_PORTS
                .map(|port| SocketAddr::new(address.ip(), port))
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
        if let Some(local) = local {
            return Ok(self.shared.device_at(local, roce)?);
        }
        // A peer in this process: both ends on its device.
        if self.shared.has_device(remote.ip(), roce) {
            return Ok(self.shared.device_at(remote.ip(), roce)?);
        }
        if matches!(self.shared.options.network.good(), Network::Ethernet { .. }) {
            neighbour::solicit(remote.ip());
        }
        let local = source_for(remote).map_err(|source| FabricError::Os {
            call: "looking up the route",
            source,
        })?;
        // A peer in another process of this machine has its address's port to
        // itself: take one of the loopback network's other addresses.
        let same_machine = local == remote.ip() || local.is_loopback();
        if !same_machine || local.is_ipv6() {
            return Ok(self.shared.device_at(local, roce)?);
        }
        let mut result = Err(FabricError::Gone("loopback address"));
        for _ in 0..8 {
            let address = device::loopback_address(&self.shared.options.entropy);
            result = self.shared.device_at(address, roce);
            if result.is_ok() {
                break;
            }
        }
        Ok(result?)
    }
}
