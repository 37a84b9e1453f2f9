use std::borrow::Borrow;
use std::io;
use std::sync::Arc;

use cairn_base::Mapping;
use cairn_rdma::{Access, Device, FabricError, Region};
use nvme_proto::wire::SglDescriptor;

/// Registered memory with a single owner. Methods panic if a range exceeds the buffer.
///
/// A command owns its buffer until [`Ended`](crate::Ended) returns it. The data cannot change in
/// between, so that a repeated command sends the same bytes. The buffer of an abandoned command
/// stays registered until the command ends.
///
/// A buffer cannot be cloned, and only its owner can write it. These programs fail to compile:
///
/// ```compile_fail,E0382
/// # fn main() {}
/// # use cairn_initiator::{Buffer, Data, Host, HostError, Namespace};
/// # fn example(host: &mut Host, disk: &Namespace, mut buffer: Buffer) -> Result<(), HostError> {
/// let ticket = host.submit(disk.write_command(0, 1), Data::whole(buffer))?;
/// buffer.write(0, b"other data");
/// # Ok(())
/// # }
/// ```
///
/// ```compile_fail,E0599
/// # fn main() {}
/// # use cairn_initiator::{Buffer, Data, Host, HostError, Namespace};
/// # fn example(host: &mut Host, disk: &Namespace, buffer: Buffer) -> Result<(), HostError> {
/// let ticket = host.submit(disk.write_command(0, 1), Data::whole(buffer.clone()))?;
/// # Ok(())
/// # }
/// ```
///
/// The command's result returns the buffer:
///
/// ```
/// # fn main() {}
/// # use cairn_initiator::{Buffer, Data, Host, HostError, Namespace};
/// # fn example(host: &mut Host, disk: &Namespace, buffer: Buffer) -> Result<(), HostError> {
/// let ticket = host.submit(disk.write_command(0, 1), Data::whole(buffer))?;
/// let mut buffer = host.wait(ticket).into_buffer()?;
/// buffer.write(0, b"other data");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Buffer {
    memory: Memory,
    start: usize,
    length: usize,
}

#[derive(Debug, Clone)]
enum Memory {
    One(Arc<Region>),
    /// One region for each path, and the index of the path used by this handle.
    Paths(Arc<Vec<Region>>, u16),
}

impl Buffer {
    /// Maps and registers `length` bytes that controllers may read and write.
    pub fn new(device: &dyn Device, length: usize) -> Result<Self, FabricError> {
        Self::with_access(device, length, for_data())
    }

    /// Like [`new`](Self::new), with other access rights.
    pub fn with_access(
        device: &dyn Device,
        length: usize,
        access: Access,
    ) -> Result<Self, FabricError> {
        let region = device.register(map(length)?, access)?;
        let memory = Memory::One(Arc::new(region));
        Ok(Self::of_memory(memory, length))
    }

    pub(crate) fn for_paths<'a>(
        devices: impl Iterator<Item = &'a Arc<dyn Device>>,
        length: usize,
    ) -> Result<Self, FabricError> {
        let mapping = map(length)?;
        let register = |device: &Arc<dyn Device>| device.register(Arc::clone(&mapping), for_data());
        let regions = devices.map(register).collect::<Result<_, _>>()?;
        Ok(Self::of_memory(Memory::Paths(Arc::new(regions), 0), length))
    }

    /// Creates a buffer that covers `region`.
    ///
    /// While a command owns the buffer or a part ([`split`](Self::split)), no other access to these
    /// bytes is allowed, not even through another buffer.
    #[must_use]
    pub fn of(region: Arc<Region>) -> Self {
        let length = region.mapping().len();
        Self::of_memory(Memory::One(region), length)
    }

    fn of_memory(memory: Memory, length: usize) -> Self {
        Self {
            memory,
            start: 0,
            length,
        }
    }

    /// Size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// True if the buffer has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Divides the buffer into consecutive pieces of `bytes` bytes; the last may be shorter. The
    /// pieces share the registration.
    ///
    /// # Panics
    /// If `bytes` is 0.
    #[must_use]
    pub fn split(self, bytes: usize) -> Vec<Self> {
        let pieces = (0..self.length).step_by(bytes);
        let piece = |at| Self {
            memory: self.memory.clone(),
            start: self.start + at,
            length: bytes.min(self.length - at),
        };
        pieces.map(piece).collect()
    }

    /// Copies `bytes` to `offset`.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        let at = self.start + offset;
        self.region().mapping().write(at, bytes);
    }

    /// Fills `out` with the bytes from `offset`.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.check(offset, out.len());
        self.region().mapping().read(self.start + offset, out);
    }

    /// Copies `length` bytes from `offset` into a new vector.
    #[must_use]
    pub fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut out = vec![0; length];
        self.read(offset, &mut out);
        out
    }

    /// Registered region that contains the buffer.
    #[must_use]
    pub fn region(&self) -> &Region {
        match &self.memory {
            Memory::One(region) => region,
            Memory::Paths(regions, path) => &regions[usize::from(*path)],
        }
    }

    pub(crate) fn address(&self) -> u64 {
        self.region().mapping().addr() + self.start as u64
    }

    /// Returns a handle of the same memory for a command, which must end before the caller uses the
    /// buffer again.
    pub(crate) fn lend(&mut self) -> Self {
        self.handle(self.memory.clone())
    }

    pub(crate) fn on_path(&self, path: usize) -> Self {
        self.handle(match &self.memory {
            Memory::One(region) => Memory::One(Arc::clone(region)),
            Memory::Paths(regions, _) => Memory::Paths(Arc::clone(regions), path as u16),
        })
    }

    pub(crate) fn has_paths(&self, count: usize) -> bool {
        matches!(&self.memory, Memory::Paths(regions, _) if regions.len() == count)
    }

    fn handle(&self, memory: Memory) -> Self {
        Self { memory, ..*self }
    }

    fn check(&self, offset: usize, length: usize) {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.length),
            "{length} bytes at {offset} lie outside a buffer of {} bytes",
            self.length
        );
    }
}

fn for_data() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE
}

fn map(length: usize) -> Result<Arc<Mapping>, FabricError> {
    let mapping = Mapping::anonymous(length).map_err(|source: io::Error| FabricError::Os {
        call: "mmap",
        source,
    })?;
    Ok(Arc::new(mapping))
}

/// Data of a command.
///
/// `B` is [`Buffer`] in methods that submit a command, which then owns the buffer, and
/// `&mut Buffer` in methods that block until the command ends.
#[derive(Debug)]
pub enum Data<'a, B = Buffer> {
    /// No data.
    None,
    /// Memory that the controller reads or writes by RDMA.
    Registered(Part<B>),
    /// Bytes for the controller, copied into the capsule.
    InCapsule(&'a [u8]),
}

/// Range of a buffer.
#[derive(Debug)]
pub struct Part<B = Buffer> {
    pub(crate) buffer: B,
    offset: usize,
    length: u32,
    /// True if the SGL descriptor requests remote invalidation of the key (Base, 4.1.2.4).
    invalidate: bool,
}

impl<B: Borrow<Buffer>> Data<'_, B> {
    /// Uses the entire buffer.
    ///
    /// # Panics
    /// If the buffer has no remote key, or is 4 GiB or larger.
    #[must_use]
    pub fn whole(buffer: B) -> Self {
        let length = buffer.borrow().len();
        let length = u32::try_from(length).expect("a command has less than 4 GiB of data");
        Self::part_of(buffer, 0, length)
    }

    /// Uses the first `length` bytes of the buffer.
    #[must_use]
    pub fn start_of(buffer: B, length: u32) -> Self {
        Self::part_of(buffer, 0, length)
    }

    /// Uses `length` bytes of the buffer from `offset`.
    ///
    /// # Panics
    /// If the range exceeds the buffer, or the buffer has no remote key.
    #[must_use]
    pub fn part_of(buffer: B, offset: usize, length: u32) -> Self {
        let whole = buffer.borrow();
        whole.check(offset, length as usize);
        assert!(
            whole.region().rkey().is_some(),
            "the buffer is not registered for controllers to reach"
        );
        Self::Registered(Part {
            buffer,
            offset,
            length,
            invalidate: false,
        })
    }

    /// Uses the first `length` bytes. The controller's response invalidates the remote key
    /// permanently, so no later command can use the buffer. The device must support remote
    /// invalidation.
    #[must_use]
    pub fn once(buffer: B, length: u32) -> Self {
        let mut data = Self::part_of(buffer, 0, length);
        if let Self::Registered(part) = &mut data {
            part.invalidate = true;
        }
        data
    }
}

impl<'a> Data<'a, &mut Buffer> {
    pub(crate) fn lend(self) -> Data<'a> {
        match self {
            Self::None => Data::None,
            Self::InCapsule(bytes) => Data::InCapsule(bytes),
            Self::Registered(part) => Data::Registered(Part {
                buffer: part.buffer.lend(),
                offset: part.offset,
                length: part.length,
                invalidate: part.invalidate,
            }),
        }
    }
}

impl Data<'_> {
    pub(crate) fn into_buffer(self) -> Option<Buffer> {
        match self {
            Self::Registered(part) => Some(part.buffer),
            Self::None | Self::InCapsule(_) => None,
        }
    }
}

impl Part {
    pub(crate) fn on_path(&self, path: usize) -> Self {
        Self {
            buffer: self.buffer.on_path(path),
            ..*self
        }
    }

    pub(crate) fn descriptor(&self) -> SglDescriptor {
        let rkey = self.buffer.region().rkey();
        let rkey = rkey.expect("checked when the data were given");
        let address = self.buffer.address() + self.offset as u64;
        SglDescriptor::keyed(address, self.length, rkey, self.invalidate)
    }
}

#[cfg(test)]
mod tests {
    use cairn_rdma::Provider;
    use cairn_rdma::loopback::Loopback;

    use super::*;

    fn buffer(length: usize) -> Buffer {
        let at = "10.0.0.1:4420".parse().unwrap();
        let device = Loopback::new().device_for(at, None).unwrap();
        Buffer::new(&*device, length).unwrap()
    }

    #[test]
    fn the_pieces_of_a_buffer_do_not_overlap() {
        let mut pieces = buffer(1000).split(400);
        let lengths: Vec<_> = pieces.iter().map(Buffer::len).collect();
        assert_eq!(lengths, [400, 400, 200]);
        for (number, piece) in pieces.iter_mut().enumerate() {
            piece.write(0, &vec![number as u8 + 1; piece.len()]);
        }
        for (number, piece) in pieces.iter().enumerate() {
            assert_eq!(
                piece.bytes(0, piece.len()),
                vec![number as u8 + 1; piece.len()]
            );
        }
        let [first, second] = [&pieces[0], &pieces[1]].map(Buffer::address);
        assert_eq!(second, first + 400);
    }

    #[test]
    #[should_panic(expected = "1 bytes at 400 lie outside a buffer of 400 bytes")]
    fn a_piece_ends_where_the_next_begins() {
        let mut pieces = buffer(1000).split(400);
        pieces[0].write(400, &[0]);
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn data_lie_within_their_buffer() {
        let _ = Data::part_of(buffer(1000), usize::MAX, 1);
    }
}
