//! Backends: storage for the blocks of a namespace.
//!
//! Callers check offsets and lengths.

mod block_file;
mod claim;
mod closing;
#[cfg(test)]
mod conformance;
mod described;
mod discard;
mod drive;
mod error;
mod formers;
mod found;
mod health;
mod identity;
mod lock;
mod loops;
mod losses;
mod memory;
mod null;
mod open;
mod operation;
mod pieces;
mod queue_limits;
mod rbd;
mod remedy;

use std::io;
#[cfg(test)]
use std::path::Path;
use std::sync::Arc;

use cairn_base::{ImageSpec, Mapping};
use uuid::Uuid;

pub use claim::Claim;
pub use described::{Atomic, Geometry, Names, Preferred};
pub use error::{OpenError, where_to_look};
pub use formers::Formers;
pub use found::{AdmittedPath, FoundPath};
pub use identity::{Scope, copied_identity};
pub use open::IN_USE_PATIENCE;
pub use operation::{BlockIo, BlockOp, Errno, Progress};

use block_file::BlockFile;
use drive::Drive;
use memory::MemoryDisk;
use null::NullDisk;
use operation::TRIES_MAX;
use rbd::RbdDisk;

use crate::ring::{FileSlot, Ring};

const BLOCK_BYTES_DEFAULT: u32 = 512;

/// Storage of a namespace, shared by all threads. Each thread has its own [`Ring`].
#[derive(Debug)]
pub struct Backend(Kind);

#[derive(Debug)]
enum Kind {
    File(BlockFile),
    Drive(Drive),
    Rbd(RbdDisk),
    Memory(MemoryDisk),
    Null(NullDisk),
}

impl Backend {
    #[cfg(test)]
    pub(crate) fn open_file(
        path: &Path,
        block_bytes: Option<u32>,
        claim: Claim,
    ) -> Result<Self, OpenError> {
        Self::open_after(path, block_bytes, claim, &Formers::default())
    }

    #[cfg(test)]
    pub(crate) fn open_after(
        path: &Path,
        block_bytes: Option<u32>,
        claim: Claim,
        formers: &Formers,
    ) -> Result<Self, OpenError> {
        Self::open(&AdmittedPath::any(path)?, block_bytes, claim, formers)
    }

    /// Opens a file, block device or NVMe character device. Takes over the lock or claim of a disk
    /// in `formers` with the same [place](FoundPath::place).
    pub fn open(
        disk: &AdmittedPath,
        block_bytes: Option<u32>,
        claim: Claim,
        formers: &Formers,
    ) -> Result<Self, OpenError> {
        if claim.expected.is_none() && drive::is_drive(disk) {
            let disk = Drive::open(disk, block_bytes, claim, formers);
            return disk.map(|disk| Self(Kind::Drive(disk)));
        }
        let disk = BlockFile::open(disk, block_bytes, claim, formers);
        disk.map(|disk| Self(Kind::File(disk)))
    }

    /// Announces the disk's removal. A later open of the same disk waits until the reactors have
    /// dropped this backend.
    pub fn let_go(&self) {
        match &self.0 {
            Kind::File(disk) => disk.let_go(),
            Kind::Drive(disk) => disk.let_go(),
            Kind::Rbd(disk) => disk.let_go(),
            Kind::Memory(_) | Kind::Null(_) => {}
        }
    }

    /// Calls `on_change` when the image fails or its size changes.
    pub fn open_image(
        image: &ImageSpec,
        block_bytes: Option<u32>,
        claim: Claim,
        on_change: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<Self, OpenError> {
        RbdDisk::open(image, block_bytes, claim, on_change).map(|disk| Self(Kind::Rbd(disk)))
    }

    /// True if the disk's operations use a ring. Operations of other disks need neither buffers nor
    /// scheduling.
    #[inline(always)]
    pub fn uses_ring(&self) -> bool {
        matches!(self.0, Kind::File(_) | Kind::Drive(_) | Kind::Rbd(_))
    }

    pub fn memory(bytes: u64, block_bytes: Option<u32>) -> Result<Self, OpenError> {
        MemoryDisk::new(bytes, block_bytes.unwrap_or(BLOCK_BYTES_DEFAULT))
            .map(|disk| Self(Kind::Memory(disk)))
            .map_err(|error| OpenError::new(format!("no memory for {bytes} bytes: {error}")))
    }

    pub fn null(
        bytes: u64,
        block_bytes: Option<u32>,
        transfer_bytes: u32,
    ) -> Result<Self, OpenError> {
        NullDisk::new(
            bytes,
            block_bytes.unwrap_or(BLOCK_BYTES_DEFAULT),
            transfer_bytes,
        )
        .map(|disk| Self(Kind::Null(disk)))
        .map_err(|error| OpenError::new(format!("no memory for zeroes: {error}")))
    }

    /// True if deallocated blocks are freed and read as zeroes.
    pub fn deallocates_to_zeroes(&self) -> bool {
        match &self.0 {
            Kind::File(disk) => disk.deallocates_to_zeroes(),
            Kind::Drive(disk) => disk.deallocates_to_zeroes(),
            Kind::Rbd(_) => true,
            Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    pub fn lacks_poll_queues(&self) -> bool {
        match &self.0 {
            Kind::Drive(disk) => !disk.can_poll(),
            Kind::File(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    /// True if the disk supports [`BlockOp::Compare`]; if not, the caller reads and compares.
    #[inline]
    pub fn compares(&self) -> bool {
        match &self.0 {
            Kind::Drive(disk) => disk.compares(),
            Kind::File(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    pub fn writes_uncorrectable(&self) -> bool {
        match &self.0 {
            Kind::Drive(disk) => disk.writes_uncorrectable(),
            Kind::File(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    pub fn takes_advice(&self) -> bool {
        match &self.0 {
            Kind::Drive(disk) => disk.takes_advice(),
            Kind::File(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    pub fn preferred(&self) -> Option<Preferred> {
        match &self.0 {
            Kind::File(disk) => disk.preferred(),
            Kind::Drive(disk) => disk.preferred(),
            Kind::Rbd(disk) => Some(disk.preferred()),
            Kind::Memory(_) | Kind::Null(_) => None,
        }
    }

    pub fn atomic(&self) -> Atomic {
        match &self.0 {
            Kind::File(disk) => disk.atomic(),
            Kind::Drive(disk) => disk.atomic(),
            Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => Atomic::BLOCK,
        }
    }

    pub fn names(&self) -> Names {
        match &self.0 {
            Kind::Drive(disk) => disk.names(),
            Kind::File(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => Names::default(),
        }
    }

    /// Returns the unique identity. A memory or null disk returns a random identity at each call.
    pub fn identity(&self, scope: Scope<'_>) -> Result<Uuid, OpenError> {
        match &self.0 {
            Kind::File(disk) => disk.identity(scope),
            Kind::Drive(disk) => disk.identity(scope),
            Kind::Rbd(disk) => Ok(disk.identity()),
            Kind::Memory(_) | Kind::Null(_) => identity::random(),
        }
        .map_err(|error| {
            OpenError::new(format!(
                "cannot determine the identity of the disk: {error}"
            ))
        })
    }

    /// Returns the [place](FoundPath::place) of a file, device or drive.
    pub fn place(&self) -> Option<(u64, u64)> {
        match &self.0 {
            Kind::File(disk) => Some(disk.place()),
            Kind::Drive(disk) => Some(disk.place()),
            Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => None,
        }
    }

    /// Returns the size in bytes if the disk reports size changes itself.
    pub fn reported_bytes(&self) -> Option<u64> {
        match &self.0 {
            Kind::Rbd(disk) => Some(disk.bytes()),
            Kind::File(_) | Kind::Drive(_) | Kind::Memory(_) | Kind::Null(_) => None,
        }
    }

    /// Reads the size in bytes if it can change. Blocks until the disk replies.
    pub fn measure(&self) -> io::Result<Option<u64>> {
        match &self.0 {
            Kind::File(disk) => disk.measure().map(Some),
            Kind::Drive(disk) => disk.measure().map(Some),
            Kind::Rbd(disk) => disk.measure().map(Some),
            Kind::Memory(_) | Kind::Null(_) => Ok(None),
        }
    }

    /// Adopts a size in bytes from [`measure`](Self::measure). Returns true if the size changed.
    pub fn accept_size(&self, bytes: u64) -> bool {
        match &self.0 {
            Kind::File(disk) => disk.accept_size(bytes),
            Kind::Drive(disk) => disk.accept_size(bytes),
            Kind::Rbd(disk) => disk.accept_size(bytes),
            Kind::Null(disk) => disk.accept_size(bytes),
            Kind::Memory(_) => false,
        }
    }

    #[cfg(test)]
    pub(crate) fn refresh(&self) -> io::Result<bool> {
        let bytes = self.measure()?;
        Ok(bytes.is_some_and(|bytes| self.accept_size(bytes)))
    }

    /// Makes completed writes durable. Blocks until the disk replies.
    ///
    /// # Errors
    /// This flush or an earlier flush failed.
    pub fn flush(&self) -> io::Result<()> {
        match &self.0 {
            Kind::File(disk) => disk.flush(),
            Kind::Drive(disk) => disk.flush(),
            Kind::Rbd(disk) => disk.flush(),
            Kind::Memory(_) | Kind::Null(_) => Ok(()),
        }
    }

    #[inline]
    pub fn geometry(&self) -> Geometry {
        match &self.0 {
            Kind::File(disk) => disk.geometry(),
            Kind::Drive(disk) => disk.geometry(),
            Kind::Rbd(disk) => disk.geometry(),
            Kind::Memory(disk) => disk.geometry(),
            Kind::Null(disk) => disk.geometry(),
        }
    }

    /// Returns the mapping of [`Self::window`], to register with RDMA devices.
    pub fn mapping(&self) -> Option<&Arc<Mapping>> {
        match &self.0 {
            Kind::File(_) | Kind::Drive(_) | Kind::Rbd(_) | Kind::Memory(_) => None,
            Kind::Null(disk) => Some(disk.mapping()),
        }
    }

    pub fn shares_mapping(&self) -> bool {
        matches!(self.0, Kind::Null(_))
    }

    /// Returns memory, as a mapping and an offset, that has the data of any read of `length` bytes.
    /// Only null disks have such memory.
    #[inline(always)]
    pub fn window(&self, length: u32) -> Option<(&Arc<Mapping>, usize)> {
        match &self.0 {
            Kind::Null(disk) => Some(disk.window(length)),
            Kind::Memory(_) | Kind::File(_) | Kind::Drive(_) | Kind::Rbd(_) => None,
        }
    }

    pub fn add_to(&self, ring: &mut Ring) -> io::Result<Option<FileSlot>> {
        match &self.0 {
            Kind::File(disk) => disk.add_to(ring).map(Some),
            Kind::Drive(disk) => disk.add_to(ring).map(Some),
            Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => Ok(None),
        }
    }

    /// Returns the slot for the next operation. Operations that may block at submission go to other
    /// threads. While the disk is `slow`, so do all reads and writes of a regular file.
    #[must_use]
    pub fn slot_while(&self, file: FileSlot, slow: bool) -> FileSlot {
        match &self.0 {
            Kind::File(disk) if slow => file.with(disk.handover_while_slow()),
            Kind::File(disk) => file.with(disk.handover()),
            Kind::Drive(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => file,
        }
    }

    /// Starts an operation, or continues it after a pause. `file` is the disk's slot, if any.
    #[inline]
    pub fn begin(
        &self,
        io: &mut BlockIo,
        ring: &mut Ring,
        file: Option<FileSlot>,
        tag: u64,
    ) -> Progress {
        match &self.0 {
            Kind::File(disk) => disk.step(io, ring, registered(file), tag),
            Kind::Drive(disk) => disk.step(io, ring, registered(file), tag),
            Kind::Rbd(disk) => disk.step(io, ring, tag),
            Kind::Memory(disk) => Progress::Done(disk.run(io, ring)),
            Kind::Null(disk) => Progress::Done(disk.run(io, ring)),
        }
    }

    #[inline]
    pub fn resume(
        &self,
        io: &mut BlockIo,
        result: Result<u32, i32>,
        ring: &mut Ring,
        file: Option<FileSlot>,
        tag: u64,
    ) -> Progress {
        match &self.0 {
            Kind::File(disk) => disk.resume(io, result, ring, registered(file), tag),
            Kind::Drive(disk) => disk.resume(io, result, ring, registered(file), tag),
            Kind::Rbd(disk) => disk.resume(io, result, ring, tag),
            Kind::Memory(_) | Kind::Null(_) => unreachable!("these end when they begin"),
        }
    }
}

impl Formers {
    /// Adds a file, device or drive; ignores other disks.
    pub fn add(&mut self, backend: &Backend) {
        match &backend.0 {
            Kind::File(disk) => self.insert(disk.former()),
            Kind::Drive(disk) => self.insert(disk.former()),
            Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => {}
        }
    }
}

fn registered(file: Option<FileSlot>) -> FileSlot {
    file.expect("a reactor registers a disk's file before its first operation")
}
