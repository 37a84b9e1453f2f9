//! Soft device: one local address with its sockets, memory and connection manager.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use cairn_base::{Mapping, ScopedAddr};
use cairn_rdma::{Access, Device, Endpoint, EndpointOptions, FabricError, Region, Roce};

use super::endpoint::SoftEndpoint;
use super::manager::ConnectionManager;
use super::relay::{Flows, Relays};
use super::slots::{INDEX_BITS, Numbers};
use super::{Shared, SoftOptions, lock};
use crate::memory::{Keys, Regions};
use crate::phy::adapter::taken_by_adapter;
use crate::phy::interface::{PathMtu, PathMtus, ShortPaths};
use crate::phy::{Inlet, Network};
use cairn_base::entropy::Entropy;
use cairn_roce_proto::cm::Path;
use cairn_roce_proto::counters::Counters;
use cairn_roce_proto::time::Instant;
use cairn_roce_proto::wire::cm::LongSend;

const MAX_ENDPOINTS: usize = (1 << INDEX_BITS) - 1;
pub(super) const INDEX_SHIFT: u32 = 24 - INDEX_BITS;

pub(super) struct SoftDevice {
    name: String,
    id: u64,
    pub(super) address: ScopedAddr,
    pub(super) options: SoftOptions,
    regions: Arc<Regions>,
    pub(super) manager: Arc<ConnectionManager>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Inlets of endpoints, in the order of binding. They stay after use, because the kernel
    /// selects them by index.
    inlets: Mutex<Vec<Slot>>,
    counted: Mutex<Counted>,
    path_mtus: Mutex<PathMtus>,
    short_paths: Mutex<ShortPaths>,
    pub(super) relays: Arc<Relays>,
    pub(super) flows: Flows,
}

#[derive(Default)]
struct Counted {
    open: HashMap<u32, Counters>,
    past: Counters,
}

struct Slot {
    inlet: Arc<Inlet>,
    taken: bool,
    numbers: Numbers,
}

pub(super) struct EndpointSlot {
    pub(super) index: u32,
    pub(super) inlet: Arc<Inlet>,
    pub(super) numbers: Numbers,
}

impl fmt::Debug for SoftDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

fn name(address: ScopedAddr, roce: Roce, usual: Roce) -> String {
    match roce {
        _ if roce == usual => format!("soft-{address}"),
        Roce::V1 { vlan: None } => format!("soft-{address}-v1"),
        Roce::V1 { vlan: Some(vid) } => format!("soft-{address}-v1-vlan{vid}"),
        Roce::V2 => format!("soft-{address}-v2"),
    }
}

pub(super) fn loopback_address(entropy: &Entropy) -> IpAddr {
    let [_, b, c, d] = (entropy.draw() as u32).to_be_bytes();
    Ipv4Addr::new(127, b, c, d.clamp(2, 254)).into()
}

impl SoftDevice {
    pub(super) fn open(
        shared: &Arc<Shared>,
        address: ScopedAddr,
        roce: Roce,
        id: u64,
    ) -> Result<Arc<Self>, FabricError> {
        let network = shared.options.network.with(roce);
        let usual = shared.options.network.roce();
        let options = SoftOptions {
            network,
            ..shared.options.clone()
        };
        if matches!(options.network.good(), Network::System)
            && let Some(reason) = taken_by_adapter(address.ip())
        {
            let provider = "soft";
            return Err(FabricError::Unavailable { provider, reason });
        }
        let inlet = options.network.first_inlet(address, INDEX_SHIFT);
        let inlet = inlet.map_err(|error| options.network.explain(address, error))?;
        let relays = Arc::<Relays>::default();
        let manager = ConnectionManager::new(&options, address, inlet, Arc::clone(&relays))?;
        let manager = Arc::new(manager);
        let device = Arc::new(Self {
            name: name(address, roce, usual),
            id,
            address,
            regions: Arc::new(Regions::new(options.entropy.clone())),
            options,
            manager: Arc::clone(&manager),
            thread: Mutex::new(None),
            inlets: Mutex::default(),
            counted: Mutex::default(),
            path_mtus: Mutex::default(),
            short_paths: Mutex::default(),
            relays,
            flows: Flows::default(),
        });
        if !device.options.network.is_moved_by_hand() {
            device.start(shared)?;
        }
        Ok(device)
    }

    pub(super) fn roce(&self) -> Roce {
        self.options.network.roce()
    }

    pub(super) fn scoped(&self, address: IpAddr) -> ScopedAddr {
        ScopedAddr::new(address, self.address.scope_id())
    }

    pub(super) fn path_mtu(&self, address: IpAddr) -> io::Result<PathMtu> {
        let now = self.options.clock.now();
        let scoped = self.scoped(address);
        let look_up = || self.options.network.path_mtu(scoped);
        lock(&self.path_mtus).of(address, now, look_up)
    }

    /// Limit for SENDs longer than the path MTU to and from a peer.
    pub(super) fn long_send(&self, path: Path) -> Option<LongSend> {
        let limit = self.path_mtu(path.local).ok()?.long_send;
        let now = self.options.clock.now();
        limit.filter(|_| !lock(&self.short_paths).has(path.remote, now))
    }

    pub(super) fn avoid_long_sends(&self, peer: IpAddr) {
        lock(&self.short_paths).add(peer, self.options.clock.now());
    }

    fn start(self: &Arc<Self>, shared: &Arc<Shared>) -> Result<(), FabricError> {
        let manager = Arc::clone(&self.manager);
        let (shared, weak) = (Arc::clone(shared), Arc::downgrade(self));
        let thread = std::thread::Builder::new()
            .name(format!("roce-cm-{}", self.id))
            .spawn(move || manager.run(&shared, &weak));
        let thread = thread.map_err(|source| FabricError::Os {
            call: "starting a thread",
            source,
        })?;
        *lock(&self.thread) = Some(thread);
        Ok(())
    }

    pub(super) fn take_slot(&self) -> Result<EndpointSlot, FabricError> {
        let mut inlets = lock(&self.inlets);
        if let Some(index) = inlets.iter().position(|slot| !slot.taken) {
            let slot = &mut inlets[index];
            slot.taken = true;
            return Ok(slot.take(index));
        }
        if inlets.len() == MAX_ENDPOINTS {
            return Err(FabricError::Limit {
                what: "endpoints",
                limit: MAX_ENDPOINTS as u64,
            });
        }
        let network = &self.options.network;
        let turn = inlets.len() as u32 + 1;
        let inlet = network.next_inlet(self.address, turn, INDEX_SHIFT);
        let inlet = inlet.map_err(|error| network.explain(self.address, error))?;
        self.flows.renew(&inlet);
        inlets.push(Slot {
            inlet: Arc::new(inlet),
            taken: true,
            numbers: Numbers::default(),
        });
        let index = inlets.len() - 1;
        Ok(inlets[index].take(index))
    }

    /// Returns the inlets that their owners have not read lately. These inlets may contain messages
    /// for endpoint `own`, because the kernel combines packets for several endpoints (GRO).
    pub(super) fn unread_inlets(&self, own: u32, now: Instant) -> Vec<Arc<Inlet>> {
        let inlets = lock(&self.inlets);
        let all = inlets.iter().zip(1..);
        let unread = all.filter(|(slot, turn)| {
            let is_late = *turn != own && self.relays.is_late(*turn, now);
            is_late && slot.inlet.has_joined_packets()
        });
        unread.map(|(slot, _)| Arc::clone(&slot.inlet)).collect()
    }

    pub(super) fn publish(&self, index: u32, counters: &Counters) {
        lock(&self.counted).open.insert(index, *counters);
    }

    pub(super) fn counters(&self) -> Counters {
        let counted = lock(&self.counted);
        let mut sum = counted.past;
        counted.open.values().for_each(|counters| sum.add(counters));
        drop(counted);
        sum.add(&self.manager.counters());
        sum
    }

    pub(super) fn give_back(&self, index: u32, numbers: Numbers) {
        let mut counted = lock(&self.counted);
        if let Some(last) = counted.open.remove(&index) {
            counted.past.add(&last);
        }
        drop(counted);
        let slot = &mut lock(&self.inlets)[index as usize - 1];
        slot.taken = false;
        slot.numbers = numbers;
    }
}

impl Slot {
    fn take(&mut self, at: usize) -> EndpointSlot {
        EndpointSlot {
            index: at as u32 + 1,
            inlet: Arc::clone(&self.inlet),
            numbers: std::mem::take(&mut self.numbers),
        }
    }
}

impl Drop for SoftDevice {
    fn drop(&mut self) {
        self.manager.stop();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread.filter(|t| t.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

impl Device for SoftDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn isolated(self: Arc<Self>) -> Result<Arc<dyn Device>, FabricError> {
        Ok(Arc::new(Domain {
            regions: Arc::new(Regions::new(self.options.entropy.clone())),
            device: self,
        }))
    }

    fn register(&self, mapping: Arc<Mapping>, access: Access) -> Result<Region, FabricError> {
        register(&self.regions, mapping, access)
    }

    fn open(self: Arc<Self>, options: &EndpointOptions) -> Result<Box<dyn Endpoint>, FabricError> {
        let regions = Arc::clone(&self.regions);
        let as_device = Arc::clone(&self) as _;
        Ok(Box::new(SoftEndpoint::open(
            self, as_device, &regions, options,
        )?))
    }
}

struct Domain {
    device: Arc<SoftDevice>,
    regions: Arc<Regions>,
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.device.fmt(f)
    }
}

impl Device for Domain {
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
        register(&self.regions, mapping, access)
    }

    fn open(self: Arc<Self>, options: &EndpointOptions) -> Result<Box<dyn Endpoint>, FabricError> {
        let (device, regions) = (Arc::clone(&self.device), Arc::clone(&self.regions));
        Ok(Box::new(SoftEndpoint::open(
            device, self, &regions, options,
        )?))
    }
}

fn register(
    regions: &Arc<Regions>,
    mapping: Arc<Mapping>,
    access: Access,
) -> Result<Region, FabricError> {
    let Keys { lkey, rkey } = regions.register(Arc::clone(&mapping), access)?;
    let registration = Registration {
        regions: Arc::clone(regions),
        lkey,
    };
    Ok(Region::new(mapping, lkey, rkey, Box::new(registration)))
}

struct Registration {
    regions: Arc<Regions>,
    lkey: u32,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.regions.deregister(self.lkey);
    }
}
