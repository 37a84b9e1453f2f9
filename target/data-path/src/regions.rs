use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cairn_base::Mapping;
use cairn_disk::Backend;
use cairn_rdma::{Access, Device, FabricError, Region};

/// Registrations of a backend's memory mapping, one per RDMA device. I/O does not lock this map:
/// each reactor has references to its regions.
#[derive(Debug)]
pub(crate) struct Regions {
    mapping: Arc<Mapping>,
    /// Poisoning is harmless: each change is one step.
    by_device: Mutex<HashMap<u64, Arc<Region>>>,
}

impl Regions {
    /// Null backends share a mapping, because devices support only a few thousand regions.
    pub(crate) fn of(backend: &Backend) -> Option<Arc<Self>> {
        static COMMON: Mutex<Weak<Regions>> = Mutex::new(Weak::new());
        let mapping = backend.mapping()?;
        let new = || {
            Arc::new(Self {
                mapping: Arc::clone(mapping),
                by_device: Mutex::default(),
            })
        };
        if !backend.shares_mapping() {
            return Some(new());
        }
        let mut common = COMMON.lock().unwrap_or_else(PoisonError::into_inner);
        let known = common.upgrade();
        let known = known.filter(|regions| Arc::ptr_eq(&regions.mapping, mapping));
        let regions = known.unwrap_or_else(new);
        *common = Arc::downgrade(&regions);
        Some(regions)
    }

    pub(crate) fn at(&self, device: &Arc<dyn Device>) -> Result<Arc<Region>, FabricError> {
        let mut by_device = self.lock();
        if let Some(region) = by_device.get(&device.id()) {
            return Ok(Arc::clone(region));
        }
        let region = device.register(Arc::clone(&self.mapping), Access::LOCAL_WRITE)?;
        let region = Arc::new(region);
        by_device.insert(device.id(), Arc::clone(&region));
        Ok(region)
    }

    pub(crate) fn forget(&self, device: u64) {
        self.lock().remove(&device);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Region>>> {
        self.by_device
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
