//! Backends: storage for the blocks of a namespace.
//!
//! Reactors share a [`Backend`]. Each [`begin`](Backend::begin)s [`BlockIo`]s, and
//! [`resume`](Backend::resume)s them with completions of its ring until [`Progress::Done`]. Callers
//! check offsets and lengths, which are in bytes.

mod block_file;
mod closing;
#[cfg(test)]
mod conformance;
mod described;
mod discard;
mod drive;
mod formers;
mod found;
mod health;
mod identity;
mod lock;
mod losses;
mod memory;
mod null;
mod open;
mod operation;
mod pieces;
mod queue_limits;
mod rbd;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::{ImageSpec, Mapping};
use uuid::Uuid;

pub use described::{Atomic, Geometry, Names, Preferred};
pub use formers::Formers;
pub use found::{AdmittedPath, FoundPath};
pub use identity::Scope;
pub use open::IN_USE_PATIENCE;
pub use operation::{BlockIo, BlockOp, Errno, Progress};

use block_file::BlockFile;
use drive::Drive;
use memory::MemoryDisk;
use null::NullDisk;
use operation::TRIES_MAX;
use rbd::RbdDisk;

use crate::ring::{FileSlot, Ring};

/// Logical block size in bytes by default.
const BLOCK_BYTES_DEFAULT: u32 = 512;

/// Access to a disk, and sharing with other programs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Claim {
    /// Whether to open for reading only.
    pub read_only: bool,
    /// Whether other programs that set this too may write to the disk.
    pub shared: bool,
    /// Required device and inode.
    pub expected: Option<(u64, u64)>,
    /// Makes the open a check: locks as configured, opens for reading, and retries a disk in use
    /// until this time.
    pub trial_until: Option<Instant>,
}

/// Reason why a backend cannot be opened, with the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct OpenError {
    what: String,
    is_not_admitted: bool,
}

impl OpenError {
    fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            is_not_admitted: false,
        }
    }

    /// Returns the error for a path whose lookup failed.
    pub fn lookup(path: &Path, error: &io::Error) -> Self {
        open::explain_lookup(path, error)
    }

    fn not_admitted(path: &Path, location: io::Result<PathBuf>) -> Self {
        let location = match location {
            Ok(location) => location.display().to_string(),
            Err(error) => format!("an object whose path is unknown ({error})"),
        };
        Self {
            what: format!(
                "{} leads to {location}, which [control] exports does not name: add its folder or \
                 device there and restart the target, or remove the link",
                path.display()
            ),
            is_not_admitted: true,
        }
    }

    /// True if the disk exists, but `[control] exports` does not permit it.
    #[must_use]
    pub fn is_not_admitted(&self) -> bool {
        self.is_not_admitted
    }

    /// Returns the error for a disk not open after `waited`.
    pub fn late(path: &Path, waited: Duration) -> Self {
        Self::new(format!(
            "{} has not opened for {} seconds: {}",
            path.display(),
            waited.as_secs(),
            where_to_look(path)
        ))
    }

    /// Returns the error for a panicked open.
    pub fn panicked(path: &Path) -> Self {
        Self::new(format!(
            "{}: opening it failed by a bug in Cairn, which is an error in the log: report that \
             line, and reload to try again",
            path.display()
        ))
    }

    /// Returns the error for an open that cannot start a thread.
    pub fn no_thread(error: &io::Error) -> Self {
        Self::new(format!(
            "cannot start a thread that opens the disk: {error}: raise the limit on tasks \
             (TasksMax in the service, `ulimit -u`)"
        ))
    }
}

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

    /// Opens an image of a Ceph cluster. `on_change` is called when its size changes or it fails.
    ///
    /// # Errors
    /// The image cannot be opened.
    pub fn open_image(
        image: &ImageSpec,
        block_bytes: Option<u32>,
        claim: Claim,
        on_change: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<Self, OpenError> {
        RbdDisk::open(image, block_bytes, claim, on_change).map(|disk| Self(Kind::Rbd(disk)))
    }

    /// Returns whether operations use a ring: only these require buffers and scheduling.
    #[inline(always)]
    pub fn uses_ring(&self) -> bool {
        matches!(self.0, Kind::File(_) | Kind::Drive(_) | Kind::Rbd(_))
    }

    /// Creates a disk in memory.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn memory(bytes: u64, block_bytes: Option<u32>) -> Result<Self, OpenError> {
        MemoryDisk::new(bytes, block_bytes.unwrap_or(BLOCK_BYTES_DEFAULT))
            .map(|disk| Self(Kind::Memory(disk)))
            .map_err(|error| OpenError::new(format!("no memory for {bytes} bytes: {error}")))
    }

    /// Creates a null disk with reads of at most `transfer_bytes`.
    ///
    /// # Errors
    /// Memory is exhausted.
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

    /// Returns whether deallocated blocks are freed and read as zeroes.
    pub fn deallocates_to_zeroes(&self) -> bool {
        match &self.0 {
            Kind::File(disk) => disk.deallocates_to_zeroes(),
            Kind::Drive(disk) => disk.deallocates_to_zeroes(),
            Kind::Rbd(_) => true,
            Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    /// Returns whether the disk is a drive without poll queues in its Linux driver.
    pub fn lacks_poll_queues(&self) -> bool {
        match &self.0 {
            Kind::Drive(disk) => !disk.can_poll(),
            Kind::File(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    /// Returns whether the disk supports [`BlockOp::Compare`]; if not, the caller reads and
    /// compares.
    #[inline]
    pub fn compares(&self) -> bool {
        match &self.0 {
            Kind::Drive(disk) => disk.compares(),
            Kind::File(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    /// Returns whether the disk supports [`BlockOp::WriteUncorrectable`].
    pub fn writes_uncorrectable(&self) -> bool {
        match &self.0 {
            Kind::Drive(disk) => disk.writes_uncorrectable(),
            Kind::File(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    /// Returns whether [`BlockOp::Advise`] has an effect.
    pub fn takes_advice(&self) -> bool {
        match &self.0 {
            Kind::Drive(disk) => disk.takes_advice(),
            Kind::File(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    /// Returns the preferred sizes, if known.
    pub fn preferred(&self) -> Option<Preferred> {
        match &self.0 {
            Kind::File(disk) => disk.preferred(),
            Kind::Drive(disk) => disk.preferred(),
            Kind::Rbd(disk) => Some(disk.preferred()),
            Kind::Memory(_) | Kind::Null(_) => None,
        }
    }

    /// Returns the atomic write units.
    pub fn atomic(&self) -> Atomic {
        match &self.0 {
            Kind::File(disk) => disk.atomic(),
            Kind::Drive(disk) => disk.atomic(),
            Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => Atomic::BLOCK,
        }
    }

    /// Returns the disk's globally unique names.
    pub fn names(&self) -> Names {
        match &self.0 {
            Kind::Drive(disk) => disk.names(),
            Kind::File(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => Names::default(),
        }
    }

    /// Returns the unique identity. A disk in memory gets a random one with each call.
    ///
    /// # Errors
    /// The identity cannot be determined.
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

    /// Returns (device, inode) on this machine.
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

    /// Adopts a size in bytes from [`measure`](Self::measure). Returns whether the size changed.
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

    /// Makes completed writes durable. Blocks.
    ///
    /// # Errors
    /// The flush failed, now or earlier.
    pub fn flush(&self) -> io::Result<()> {
        match &self.0 {
            Kind::File(disk) => disk.flush(),
            Kind::Drive(disk) => disk.flush(),
            Kind::Rbd(disk) => disk.flush(),
            Kind::Memory(_) | Kind::Null(_) => Ok(()),
        }
    }

    /// Returns the block layout. The size can change.
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

    /// Returns the mapping of [`Self::window`], for registration with RDMA devices.
    pub fn mapping(&self) -> Option<&Arc<Mapping>> {
        match &self.0 {
            Kind::File(_) | Kind::Drive(_) | Kind::Rbd(_) | Kind::Memory(_) => None,
            Kind::Null(disk) => Some(disk.mapping()),
        }
    }

    /// Returns whether all disks of this kind share one mapping.
    pub fn shares_mapping(&self) -> bool {
        matches!(self.0, Kind::Null(_))
    }

    /// Returns memory that reads as `length` bytes without a buffer: (mapping, offset).
    #[inline(always)]
    pub fn window(&self, length: u32) -> Option<(&Arc<Mapping>, usize)> {
        match &self.0 {
            Kind::Null(disk) => Some(disk.window(length)),
            Kind::Memory(_) | Kind::File(_) | Kind::Drive(_) | Kind::Rbd(_) => None,
        }
    }

    /// Registers the disk with a ring. Returns its slot if it requires one.
    ///
    /// # Errors
    /// The ring is full.
    pub fn add_to(&self, ring: &mut Ring) -> io::Result<Option<FileSlot>> {
        match &self.0 {
            Kind::File(disk) => disk.add_to(ring).map(Some),
            Kind::Drive(disk) => disk.add_to(ring).map(Some),
            Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => Ok(None),
        }
    }

    /// Returns the slot to use: blocking operations on a `slow` disk go to other threads.
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

    /// Continues an operation after a completion.
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

fn registered(file: Option<FileSlot>) -> FileSlot {
    file.expect("a reactor registers a disk's file before its first operation")
}

/// Returns a hint for the diagnosis of a disk that does not respond.
#[must_use]
pub fn where_to_look(path: &Path) -> &'static str {
    if path.to_string_lossy().starts_with("rbd:") {
        "look at the Ceph cluster by `ceph -s`, and whether this machine reaches all of its OSDs"
    } else {
        "look in the kernel's log for a disk, or a server of a network file system, that does \
         not answer"
    }
}
