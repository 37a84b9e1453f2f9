//! Registered memory, and its use as data of a command.

use std::io;
use std::sync::Arc;

use cairn_rdma::{Access, Device, FabricError, Mapping, Region};

/// Registered memory, shared between clones.
///
/// A command in flight holds its buffer, so dropping the caller's last clone does not unmap memory
/// that the controller may access.
#[derive(Debug, Clone)]
pub struct Buffer(Arc<Region>);

impl Buffer {
    /// Maps and registers at least `length` bytes that controllers may read and write.
    ///
    /// # Errors
    /// The memory cannot be allocated or locked.
    pub fn new(device: &dyn Device, length: usize) -> Result<Self, FabricError> {
        Self::with_access(device, length, for_data())
    }

    /// Maps and registers memory like [`new`](Self::new), with other access rights.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with_access(
        device: &dyn Device,
        length: usize,
        access: Access,
    ) -> Result<Self, FabricError> {
        Self::of_mapping(device, &map(length)?, access)
    }

    /// Registers memory that may also be registered elsewhere.
    pub(crate) fn of_mapping(
        device: &dyn Device,
        mapping: &Arc<Mapping>,
        access: Access,
    ) -> Result<Self, FabricError> {
        Ok(Self(Arc::new(
            device.register(Arc::clone(mapping), access)?,
        )))
    }

    /// Buffer of memory registered by the caller, readable and writable by controllers.
    #[must_use]
    pub fn of(region: Arc<Region>) -> Self {
        Self(region)
    }

    /// Size in bytes, rounded up to whole pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.mapping().len()
    }

    /// Always false: no mapping is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.mapping().is_empty()
    }

    /// Copies bytes into the buffer.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.0.mapping().write(offset, bytes);
    }

    /// Copies bytes out of the buffer.
    ///
    /// # Panics
    /// If the range exceeds the buffer.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.0.mapping().read(offset, out);
    }

    /// Copies bytes out into a vector.
    ///
    /// # Panics
    /// If the range exceeds the buffer.
    #[must_use]
    pub fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut out = vec![0; length];
        self.read(offset, &mut out);
        out
    }

    /// Registration with keys and address.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.0
    }
}

/// Access rights for data that controllers read and write.
pub(crate) fn for_data() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE
}

/// Maps at least `length` bytes, in whole pages.
pub(crate) fn map(length: usize) -> Result<Arc<Mapping>, FabricError> {
    let mapping = Mapping::anonymous(length).map_err(|source: io::Error| FabricError::Os {
        call: "mmap",
        source,
    })?;
    Ok(Arc::new(mapping))
}

/// Location of a command's data.
#[derive(Debug, Clone, Copy)]
pub enum Data<'a> {
    /// The command has no data.
    None,
    /// Registered memory, which the controller accesses by RDMA.
    Keyed {
        /// Buffer with the data.
        buffer: &'a Buffer,
        /// Offset in the buffer.
        offset: usize,
        /// Length in bytes.
        length: u32,
        /// True if the controller invalidates the buffer's key with its response. The buffer then
        /// serves for one command, and the device must support invalidation.
        invalidate: bool,
    },
    /// Data for the controller, copied into the capsule after the SQE.
    InCapsule(&'a [u8]),
}

impl<'a> Data<'a> {
    /// First `length` bytes of `buffer`.
    #[must_use]
    pub fn start_of(buffer: &'a Buffer, length: u32) -> Self {
        Self::part_of(buffer, 0, length)
    }

    /// `length` bytes of `buffer` from `offset`.
    #[must_use]
    pub fn part_of(buffer: &'a Buffer, offset: usize, length: u32) -> Self {
        Self::Keyed {
            buffer,
            offset,
            length,
            invalidate: false,
        }
    }

    /// First `length` bytes of `buffer`, whose key the controller invalidates.
    #[must_use]
    pub fn once(buffer: &'a Buffer, length: u32) -> Self {
        Self::Keyed {
            buffer,
            offset: 0,
            length,
            invalidate: true,
        }
    }
}
