use std::sync::{Arc, Mutex, PoisonError, Weak};

use cairn_base::ScopedAddr;
use cairn_rdma::FabricError;

use crate::cm::Id;
use crate::device::VerbsDevice;
use crate::explain;
use crate::library::Library;

pub(crate) struct Devices {
    library: &'static Library,
    open: Mutex<Vec<Weak<VerbsDevice>>>,
}

impl Devices {
    pub(crate) fn new(library: &'static Library) -> Self {
        Self {
            library,
            open: Mutex::default(),
        }
    }

    pub(crate) fn library(&self) -> &'static Library {
        self.library
    }

    pub(crate) fn of(&self, id: &Id) -> Result<Arc<VerbsDevice>, FabricError> {
        let address = ScopedAddr::from(id.local_addr());
        let handle = id
            .device()
            .ok_or_else(|| explain::no_device(address.ip()))?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|device| device.strong_count() > 0);
        let known = open
            .iter()
            .filter_map(Weak::upgrade)
            .find(|device| device.holds(id));
        if let Some(device) = known {
            return Ok(device);
        }
        let device = VerbsDevice::open(self.library, &handle, address)?;
        open.push(Arc::downgrade(&device));
        Ok(device)
    }
}
