//! Memory that a controller may reach, and how a command names it.

use std::io;
use std::sync::Arc;

use cairn_rdma::{Access, Device, FabricError, Mapping, Region};

/// A registered stretch of memory. Clones are the same memory.
///
/// A command that is outstanding holds its buffer: dropping the last clone of
/// one's own never pulls memory from under the controller.
#[derive(Debug, Clone)]
pub struct Buffer(Arc<Region>);

impl Buffer {
    /// Maps and registers at least `length` bytes that controllers may read
    /// and write.
    ///
    /// # Errors
    /// There is no such memory, or it cannot be locked.
    pub fn new(device: &dyn Device, length: usize) -> Result<Self, FabricError> {
        Self::with_access(device, length, for_data())
    }

    /// As [`new`](Self::new), with other rights.
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

    /// Registers memory that may be registered elsewhere, too.
    pub(crate) fn of_mapping(
        device: &dyn Device,
        mapping: &Arc<Mapping>,
        access: Access,
    ) -> Result<Self, FabricError> {
        Ok(Self(Arc::new(
            device.register(Arc::clone(mapping), access)?,
        )))
    }

    /// Memory that was registered otherwise, for controllers to read and write.
    #[must_use]
    pub fn of(region: Arc<Region>) -> Self {
        Self(region)
    }

    /// Bytes: what was asked for, rounded up to whole pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.mapping().len()
    }

    /// Never: no mapping is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.mapping().is_empty()
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.0.mapping().write(offset, bytes);
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.0.mapping().read(offset, out);
    }

    /// Copies bytes out into a vector.
    ///
    /// # Panics
    /// If there are not as many.
    #[must_use]
    pub fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut out = vec![0; length];
        self.read(offset, &mut out);
        out
    }

    /// The registration: its keys and address.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.0
    }
}

/// Rights that data needs: controllers read it and write it.
pub(crate) fn for_data() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE
}

/// Memory of at least so many bytes, in whole pages.
pub(crate) fn map(length: usize) -> Result<Arc<Mapping>, FabricError> {
    let mapping = Mapping::anonymous(length).map_err(|source: io::Error| FabricError::Os {
        call: "mmap",
        source,
    })?;
    Ok(Arc::new(mapping))
}

/// Where a command's data is.
#[derive(Debug, Clone, Copy)]
pub enum Data<'a> {
    /// The command has none.
    None,
    /// In registered memory, which the controller reaches by RDMA.
    Keyed {
        /// The memory.
        buffer: &'a Buffer,
        /// Where in it.
        offset: usize,
        /// How much of it, in bytes.
        length: u32,
        /// Whether the controller takes the buffer's key out of use with
        /// its response. The buffer is good for one command then, and the
        /// adapter must be one whose keys can be invalidated.
        invalidate: bool,
    },
    /// Copied into the capsule, behind the SQE. For data to the controller.
    InCapsule(&'a [u8]),
}

impl<'a> Data<'a> {
    /// The first `length` bytes of `buffer`.
    #[must_use]
    pub fn start_of(buffer: &'a Buffer, length: u32) -> Self {
        Self::part_of(buffer, 0, length)
    }

    /// `length` bytes of `buffer`, from `offset` on.
    #[must_use]
    pub fn part_of(buffer: &'a Buffer, offset: usize, length: u32) -> Self {
        Self::Keyed {
            buffer,
            offset,
            length,
            invalidate: false,
        }
    }

    /// The first `length` bytes of `buffer`, whose key ends with the command.
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
