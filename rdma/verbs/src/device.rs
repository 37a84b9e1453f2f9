//! RDMA adapter, opened once for all reactors.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use cairn_base::{Mapping, ScopedAddr};
use cairn_rdma::{
    Access, Device, Endpoint, EndpointLimits, EndpointOptions, FabricError, MAX_SGE, PKey, Region,
};

use crate::cm::{DeviceHandle, Id};
use crate::endpoint::VerbsEndpoint;
use crate::explain;
use crate::library::Library;
use crate::objects::{Context, MemoryRegion, ProtectionDomain};
use crate::pkey_table::PKeyTable;
use crate::region_table::{Listed, RegionTable};
use crate::sys;
use crate::watcher::{Subscribers, Watcher};

pub(crate) struct VerbsDevice {
    id: u64,
    name: String,
    capabilities: sys::ibv_device_attr,
    // Dropped before `domain`, so that its thread stops before the device is closed.
    _watcher: Watcher,
    subscribers: Arc<Subscribers>,
    regions: RegionTable,
    next_vector: AtomicU32,
    domain: Arc<ProtectionDomain>,
    library: &'static Library,
}

impl fmt::Debug for VerbsDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerbsDevice({}, id {})", self.name, self.id)
    }
}

impl VerbsDevice {
    pub(crate) fn open(
        library: &'static Library,
        handle: &DeviceHandle<'_>,
        address: ScopedAddr,
    ) -> Result<Arc<Self>, FabricError> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        if handle.is_iwarp() {
            return Err(explain::iwarp(&handle.name));
        }
        let context = Context::open(library, handle)?;
        let capabilities = context.query()?;
        if (capabilities.max_sge as usize) < MAX_SGE {
            return Err(explain::unusable(&format!(
                "RDMA device {} has fewer than {MAX_SGE} scatter/gather elements",
                handle.name
            )));
        }
        let domain = ProtectionDomain::new(&context)?;
        let subscribers = Arc::new(Subscribers::new(handle.name.clone()));
        let watcher = Watcher::start(library, context, Arc::clone(&subscribers), address)?;
        Ok(Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            name: handle.name.clone(),
            capabilities,
            _watcher: watcher,
            subscribers,
            regions: RegionTable::default(),
            next_vector: AtomicU32::new(0),
            domain,
            library,
        }))
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.subscribers.is_removed()
    }

    pub(crate) fn holds(&self, id: &Id) -> bool {
        !self.is_removed() && id.device().is_some_and(|handle| handle.name == self.name)
    }

    /// Returns the index of a P_Key in the table of the identifier's port; `None` for
    /// [`PKey::DEFAULT`], whose index rdma_cm chooses.
    pub(crate) fn pkey_index(&self, id: &Id, pkey: PKey) -> Result<Option<u16>, FabricError> {
        if pkey == PKey::DEFAULT {
            return Ok(None);
        }
        let context = self.domain.context();
        let table = PKeyTable {
            device: self.name.clone(),
            keys: context.pkeys(id.port(), self.capabilities.max_pkeys),
        };
        table.index_of(pkey).map(Some)
    }

    pub(crate) fn has_shared_receives(&self) -> bool {
        self.capabilities.max_srq > 0
    }

    /// True if the driver flushes receives of a shared queue without a completion.
    pub(crate) fn loses_receives(&self) -> bool {
        const BROADCOM: u32 = 0x14e4;
        self.capabilities.vendor_id == BROADCOM
    }

    #[cfg(test)]
    pub(crate) fn domain_for_tests(&self) -> Arc<ProtectionDomain> {
        Arc::clone(&self.domain)
    }

    pub(crate) fn library(&self) -> &'static Library {
        self.library
    }

    pub(crate) fn subscribers(&self) -> &Arc<Subscribers> {
        &self.subscribers
    }

    pub(crate) fn regions(&self) -> &RegionTable {
        &self.regions
    }

    pub(crate) fn next_vector(&self) -> u32 {
        let turn = self.next_vector.fetch_add(1, Ordering::Relaxed);
        turn % self.domain.context().completion_vectors()
    }

    pub(crate) fn limits(&self) -> EndpointLimits {
        let clamped = |limit: i32| u8::try_from(limit.max(0)).unwrap_or(u8::MAX);
        EndpointLimits {
            send_work: self.capabilities.max_qp_wr.max(0) as u32,
            initiator_depth: clamped(self.capabilities.max_qp_init_rd_atom),
            responder_resources: clamped(self.capabilities.max_qp_rd_atom),
            send_with_invalidate: self.capabilities.device_cap_flags
                & sys::IBV_DEVICE_MEM_MGT_EXTENSIONS
                != 0,
            shared_receives: self.has_shared_receives(),
        }
    }

    fn register_in(
        &self,
        domain: &Arc<ProtectionDomain>,
        mapping: Arc<Mapping>,
        access: Access,
    ) -> Result<Region, FabricError> {
        let length = mapping.len() as u64;
        let region = MemoryRegion::new(domain, &mapping, access).map_err(|error| {
            explain::register(&self.name, length, explain::memlock_limit(), error)
        })?;
        let lkey = region.lkey();
        let rkey = access.is_remote().then(|| region.rkey());
        let registration = Registration {
            _listed: self.regions.list(lkey, &mapping),
            _region: region,
        };
        Ok(Region::new(mapping, lkey, rkey, Box::new(registration)))
    }

    pub(crate) fn check_size(&self, options: &EndpointOptions) -> Result<(), FabricError> {
        let max_receives = match self.has_shared_receives() {
            true => self.capabilities.max_srq_wr,
            false => i32::MAX,
        };
        for (what, wanted, limit) in [
            ("receives", options.receives, max_receives),
            (
                "completions",
                options.completions,
                self.capabilities.max_cqe,
            ),
            (
                "queue pairs",
                options.queue_pairs.into(),
                self.capabilities.max_qp,
            ),
        ] {
            let limit = limit.max(0) as u64;
            if u64::from(wanted) > limit {
                return Err(FabricError::Limit { what, limit });
            }
        }
        Ok(())
    }
}

impl Device for VerbsDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn isolated(self: Arc<Self>) -> Result<Arc<dyn Device>, FabricError> {
        Ok(Arc::new(Domain {
            own: ProtectionDomain::new(self.domain.context())?,
            device: self,
        }))
    }

    fn register(&self, mapping: Arc<Mapping>, access: Access) -> Result<Region, FabricError> {
        self.register_in(&self.domain, mapping, access)
    }

    fn open(self: Arc<Self>, options: &EndpointOptions) -> Result<Box<dyn Endpoint>, FabricError> {
        let domain = Arc::clone(&self.domain);
        let as_device = Arc::clone(&self) as _;
        Ok(Box::new(VerbsEndpoint::open(
            self, as_device, domain, options,
        )?))
    }
}

struct Domain {
    own: Arc<ProtectionDomain>,
    device: Arc<VerbsDevice>,
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
        self.device.register_in(&self.own, mapping, access)
    }

    fn open(self: Arc<Self>, options: &EndpointOptions) -> Result<Box<dyn Endpoint>, FabricError> {
        let (device, domain) = (Arc::clone(&self.device), Arc::clone(&self.own));
        Ok(Box::new(VerbsEndpoint::open(
            device, self, domain, options,
        )?))
    }
}

struct Registration {
    _listed: Listed,
    _region: MemoryRegion,
}
