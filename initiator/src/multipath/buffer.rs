//! Memory that every path's controller may reach.

use std::sync::Arc;

use cairn_rdma::{Device, FabricError};

use crate::buffer::{Buffer, Data, for_data, map};

/// Memory for the data of one command, registered with the adapter of each path: whichever
/// path a command takes, its data is where it was.
///
/// A command owns its buffer from [`Multipath::submit`] on and gives it back with its answer
/// ([`Ended`]), so no program can change data that a path may still have to send.
///
/// [`Multipath::submit`]: super::Multipath::submit
/// [`Ended`]: super::Ended
#[derive(Debug)]
pub struct PathBuffer(Arc<[Buffer]>);

impl PathBuffer {
    /// Maps at least `length` bytes and registers them with these, one a path.
    pub(super) fn new<'a>(
        devices: impl Iterator<Item = &'a Arc<dyn Device>>,
        length: usize,
    ) -> Result<Self, FabricError> {
        let mapping = map(length)?;
        let register =
            |device: &Arc<dyn Device>| Buffer::of_mapping(&**device, &mapping, for_data());
        Ok(Self(devices.map(register).collect::<Result<_, _>>()?))
    }

    /// Bytes: what was asked for, rounded up to whole pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0[0].len()
    }

    /// Never: no mapping is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0[0].is_empty()
    }

    /// The same memory, for a command during which its caller cannot reach `self`.
    pub(super) fn lend(&mut self) -> Self {
        Self(Arc::clone(&self.0))
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.0[0].write(offset, bytes);
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.0[0].read(offset, out);
    }

    /// Copies bytes out into a vector.
    ///
    /// # Panics
    /// If there are not as many.
    #[must_use]
    pub fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        self.0[0].bytes(offset, length)
    }
}

/// Where the data of a command is: in registered memory. Data in capsules would have
/// to be kept for a second try, so there is none.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) buffer: Option<PathBuffer>,
    pub(super) offset: usize,
    pub(super) length: u32,
}

impl Part {
    /// As the controller of that path reaches it.
    pub(super) fn by(&self, path: usize) -> Data<'_> {
        match &self.buffer {
            Some(buffer) => Data::part_of(&buffer.0[path], self.offset, self.length),
            None => Data::None,
        }
    }
}
