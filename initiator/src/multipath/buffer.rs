//! Memory registered for every path.

use std::sync::Arc;

use cairn_rdma::{Device, FabricError};

use crate::buffer::{Buffer, Data, for_data, map};

/// Memory for the data of one command, registered with the device of each path, so that a command
/// can take any path.
///
/// A command owns its buffer from [`Multipath::submit`] until its result ([`Ended`]), so no program
/// can modify data that a path may still send.
///
/// [`Multipath::submit`]: super::Multipath::submit
/// [`Ended`]: super::Ended
#[derive(Debug)]
pub struct PathBuffer(Arc<[Buffer]>);

impl PathBuffer {
    /// Maps at least `length` bytes and registers them with each device.
    pub(super) fn new<'a>(
        devices: impl Iterator<Item = &'a Arc<dyn Device>>,
        length: usize,
    ) -> Result<Self, FabricError> {
        let mapping = map(length)?;
        let register =
            |device: &Arc<dyn Device>| Buffer::of_mapping(&**device, &mapping, for_data());
        Ok(Self(devices.map(register).collect::<Result<_, _>>()?))
    }

    /// Size in bytes, rounded up to whole pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0[0].len()
    }

    /// Always false: no mapping is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0[0].is_empty()
    }

    /// Second handle to the memory, for a command during which the caller cannot access `self`.
    pub(super) fn lend(&mut self) -> Self {
        Self(Arc::clone(&self.0))
    }

    /// Copies bytes into the buffer.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.0[0].write(offset, bytes);
    }

    /// Copies bytes out of the buffer.
    ///
    /// # Panics
    /// If the range exceeds the buffer.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.0[0].read(offset, out);
    }

    /// Copies bytes out into a vector.
    ///
    /// # Panics
    /// If the range exceeds the buffer.
    #[must_use]
    pub fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        self.0[0].bytes(offset, length)
    }
}

/// Data of a command in registered memory. Capsule data is not used: it would have to be kept for
/// another attempt.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) buffer: Option<PathBuffer>,
    pub(super) offset: usize,
    pub(super) length: u32,
}

impl Part {
    /// Data as registered for a path's controller.
    pub(super) fn by(&self, path: usize) -> Data<'_> {
        match &self.buffer {
            Some(buffer) => Data::part_of(&buffer.0[path], self.offset, self.length),
            None => Data::None,
        }
    }
}
