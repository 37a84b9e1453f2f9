//! Memory registered with a device.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use cairn_base::Mapping;

use crate::work::{RemoteBuffer, Sge};

/// Mapping registered with a device. Dropping it invalidates its keys, then releases the mapping.
pub struct Region {
    lkey: u32,
    rkey: Option<u32>,
    // Dropped before `mapping`: memory must be deregistered before it is freed.
    _registration: Box<dyn Any + Send + Sync>,
    mapping: Arc<Mapping>,
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region(lkey {:#x}, ", self.lkey)?;
        match self.rkey {
            Some(rkey) => write!(f, "rkey {rkey:#x}, {:?})", self.mapping),
            None => write!(f, "no rkey, {:?})", self.mapping),
        }
    }
}

impl Region {
    /// Creates a region for a provider.
    ///
    /// Dropping `registration` deregisters the memory. `rkey` is set if peers have access.
    #[must_use]
    pub fn new(
        mapping: Arc<Mapping>,
        lkey: u32,
        rkey: Option<u32>,
        registration: Box<dyn Any + Send + Sync>,
    ) -> Self {
        Self {
            lkey,
            rkey,
            _registration: registration,
            mapping,
        }
    }

    /// Returns the local key, for [`Sge`]s.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Returns the remote key, if peers have access.
    #[must_use]
    pub fn rkey(&self) -> Option<u32> {
        self.rkey
    }

    /// Returns the registered mapping.
    #[must_use]
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Returns a range of the region for local work requests. `offset` is in bytes.
    #[must_use]
    #[inline]
    pub fn sge(&self, offset: usize, length: u32) -> Sge {
        Sge {
            addr: self.mapping.addr() + offset as u64,
            length,
            lkey: self.lkey,
        }
    }

    /// Returns the buffer at `offset` for work requests of peers; `None` if they have no access.
    #[must_use]
    pub fn remote(&self, offset: usize) -> Option<RemoteBuffer> {
        Some(RemoteBuffer {
            addr: self.mapping.addr() + offset as u64,
            rkey: self.rkey?,
        })
    }
}
