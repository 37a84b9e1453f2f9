//! What the blocks of a namespace live on.
//!
//! A [`Backend`] is shared by all reactors and has no state of its own for an
//! operation: that is a [`BlockIo`], which lives in the request it belongs to.
//! A reactor [`begin`](Backend::begin)s it, and [`resume`](Backend::resume)s it
//! with each completion its ring has for it, until it is [`Progress::Done`].
//! Offsets and lengths are bytes here and were checked against the namespace.

mod block_file;
mod closing;
#[cfg(test)]
mod conformance;
mod described;
mod discard;
mod drive;
mod formers;
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
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cairn_rbd::Spec;
use cairn_rdma::Mapping;
use uuid::Uuid;

pub use described::{Atomic, Geometry, Names, Preferred};
pub use formers::Formers;
pub use identity::Scope;
pub use operation::{BlockIo, BlockOp, Errno, Progress};

use block_file::BlockFile;
use drive::Drive;
use memory::MemoryDisk;
use null::NullDisk;
use operation::TRIES_MAX;
use rbd::RbdDisk;

use crate::ring::{FileSlot, Ring};

/// Bytes of a logical block where neither the administrator nor the disk says.
const BLOCK_BYTES_DEFAULT: u32 = 512;

/// How a disk is to be used, and who else may use it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Claim {
    /// It is not written to.
    pub read_only: bool,
    /// Others that say the same may write to it, too.
    pub shared: bool,
    /// The device and inode that it must have: whatever else is found there is refused.
    pub expected: Option<(u64, u64)>,
    /// True if the disk is opened to find out whether it can be: as a disk that is written to, but for reading.
    pub is_trial: bool,
}

/// A backend could not be opened. Says what was wrong and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct OpenError {
    what: String,
}

impl OpenError {
    fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }

    /// It has not opened for so long.
    pub fn late(path: &Path, waited: Duration) -> Self {
        Self::new(format!(
            "{} has not opened for {} seconds: {}",
            path.display(),
            waited.as_secs(),
            where_to_look(path)
        ))
    }

    /// The thread that opened it panicked.
    pub fn panicked(path: &Path) -> Self {
        Self::new(format!(
            "{}: opening it failed by a bug in Cairn, which is an error in the log: report that \
             line, and reload to try again",
            path.display()
        ))
    }

    /// The system gives no thread to open it on.
    pub fn no_thread(error: &io::Error) -> Self {
        Self::new(format!(
            "cannot start a thread to open it: {error}: raise the limit on tasks (TasksMax in the \
             service, `ulimit -u`)"
        ))
    }
}

/// A disk: what stores the blocks. All threads share it; each has its own [`Ring`].
#[derive(Debug)]
pub struct Backend(Kind);

/// The kinds of disks.
#[derive(Debug)]
enum Kind {
    /// A file or block device, by io_uring.
    File(BlockFile),
    /// A namespace of an NVMe drive, past the block layer.
    Drive(Drive),
    /// An image of a Ceph cluster, by librbd.
    Rbd(RbdDisk),
    /// Memory that devices reach by themselves.
    Memory(MemoryDisk),
    /// Nothing: reads give zeroes, writes vanish.
    Null(NullDisk),
}

impl Backend {
    /// A file or block device, or the character device of an NVMe drive's namespace.
    ///
    /// # Errors
    /// It cannot be opened, or not with that block size.
    pub fn open_file(
        path: &Path,
        block_bytes: Option<u32>,
        claim: Claim,
    ) -> Result<Self, OpenError> {
        Self::open_after(path, block_bytes, claim, &Formers::default())
    }

    /// An image of a Ceph cluster. `on_change` is called when its size is another or it fails.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open_image(
        image: &Spec,
        block_bytes: Option<u32>,
        claim: Claim,
        on_change: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<Self, OpenError> {
        RbdDisk::open(image, block_bytes, claim, on_change).map(|disk| Self(Kind::Rbd(disk)))
    }

    /// Whether its operations go through a ring: they need buffers, and take turns.
    #[inline(always)]
    pub fn uses_ring(&self) -> bool {
        matches!(self.0, Kind::File(_) | Kind::Drive(_) | Kind::Rbd(_))
    }

    /// A disk in memory.
    ///
    /// # Errors
    /// There is not so much memory.
    pub fn memory(bytes: u64, block_bytes: Option<u32>) -> Result<Self, OpenError> {
        MemoryDisk::new(bytes, block_bytes.unwrap_or(BLOCK_BYTES_DEFAULT))
            .map(|disk| Self(Kind::Memory(disk)))
            .map_err(|error| OpenError::new(format!("no memory for {bytes} bytes: {error}")))
    }

    /// A disk that is none, of which a command reads `transfer_bytes` at most.
    ///
    /// # Errors
    /// There is no memory for the zeroes.
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

    /// Whether deallocated blocks are given back and read as zeroes.
    pub fn deallocates_to_zeroes(&self) -> bool {
        match &self.0 {
            Kind::File(disk) => disk.deallocates_to_zeroes(),
            Kind::Drive(disk) => disk.deallocates_to_zeroes(),
            Kind::Rbd(_) => true,
            Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    /// Whether commands end by interrupts, however a drive is asked for: Linux's driver has no
    /// queues to poll. No other disk can be asked.
    pub fn lacks_poll_queues(&self) -> bool {
        match &self.0 {
            Kind::Drive(disk) => !disk.can_poll(),
            Kind::File(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    /// Whether it takes [`BlockOp::Compare`]; others are read, and compared by the caller.
    #[inline]
    pub fn compares(&self) -> bool {
        match &self.0 {
            Kind::Drive(disk) => disk.compares(),
            Kind::File(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    /// Whether it takes [`BlockOp::WriteUncorrectable`].
    pub fn writes_uncorrectable(&self) -> bool {
        match &self.0 {
            Kind::Drive(disk) => disk.writes_uncorrectable(),
            Kind::File(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    /// Whether it takes [`BlockOp::Advise`] to something that has a use for it.
    pub fn takes_advice(&self) -> bool {
        match &self.0 {
            Kind::Drive(disk) => disk.takes_advice(),
            Kind::File(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => false,
        }
    }

    /// The sizes in which it works best, if it says.
    pub fn preferred(&self) -> Option<Preferred> {
        match &self.0 {
            Kind::File(disk) => disk.preferred(),
            Kind::Drive(disk) => disk.preferred(),
            Kind::Rbd(disk) => Some(disk.preferred()),
            Kind::Memory(_) | Kind::Null(_) => None,
        }
    }

    /// What it promises of a write.
    pub fn atomic(&self) -> Atomic {
        match &self.0 {
            Kind::File(disk) => disk.atomic(),
            Kind::Drive(disk) => disk.atomic(),
            Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => Atomic::BLOCK,
        }
    }

    /// The names that it has, if it has any.
    pub fn names(&self) -> Names {
        match &self.0 {
            Kind::Drive(disk) => disk.names(),
            Kind::File(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => Names::default(),
        }
    }

    /// What distinguishes it from all other disks. That of memory is new each time, as its
    /// contents are.
    ///
    /// # Errors
    /// It cannot be found out.
    pub fn identity(&self, scope: Scope<'_>) -> Result<Uuid, OpenError> {
        match &self.0 {
            Kind::File(disk) => disk.identity(scope),
            Kind::Drive(disk) => disk.identity(scope),
            Kind::Rbd(disk) => Ok(disk.identity()),
            Kind::Memory(_) | Kind::Null(_) => identity::random(),
        }
        .map_err(|error| OpenError::new(format!("cannot find out which disk it is: {error}")))
    }

    /// The file or device of its own that it is on this machine: (device, inode).
    pub fn place(&self) -> Option<(u64, u64)> {
        match &self.0 {
            Kind::File(disk) => Some(disk.place()),
            Kind::Drive(disk) => Some(disk.place()),
            Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => None,
        }
    }

    /// Its bytes, if it reports by itself when they change.
    pub fn reported_bytes(&self) -> Option<u64> {
        match &self.0 {
            Kind::Rbd(disk) => Some(disk.bytes()),
            Kind::File(_) | Kind::Drive(_) | Kind::Memory(_) | Kind::Null(_) => None,
        }
    }

    /// Its bytes now, if they can change. Blocks as long as the disk takes.
    pub fn measure(&self) -> io::Result<Option<u64>> {
        match &self.0 {
            Kind::File(disk) => disk.measure().map(Some),
            Kind::Drive(disk) => disk.measure().map(Some),
            Kind::Rbd(disk) => disk.measure().map(Some),
            Kind::Memory(_) | Kind::Null(_) => Ok(None),
        }
    }

    /// Takes over what [`measure`](Self::measure) found; returns whether it is another size.
    pub fn accept_size(&self, bytes: u64) -> bool {
        match &self.0 {
            Kind::File(disk) => disk.accept_size(bytes),
            Kind::Drive(disk) => disk.accept_size(bytes),
            Kind::Rbd(disk) => disk.accept_size(bytes),
            Kind::Null(disk) => disk.accept_size(bytes),
            Kind::Memory(_) => false,
        }
    }

    /// Takes over the size as it is now; returns whether it changed.
    #[cfg(test)]
    pub(crate) fn refresh(&self) -> io::Result<bool> {
        let bytes = self.measure()?;
        Ok(bytes.is_some_and(|bytes| self.accept_size(bytes)))
    }

    /// Makes what was written durable, and blocks until it is.
    pub fn flush(&self) -> io::Result<()> {
        match &self.0 {
            Kind::File(disk) => disk.flush(),
            Kind::Drive(disk) => disk.flush(),
            Kind::Rbd(disk) => disk.flush(),
            Kind::Memory(_) | Kind::Null(_) => Ok(()),
        }
    }

    /// How its blocks are laid out now: a file can grow.
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

    /// The memory that its windows show, for the devices to know it.
    pub fn mapping(&self) -> Option<&Arc<Mapping>> {
        match &self.0 {
            Kind::File(_) | Kind::Drive(_) | Kind::Rbd(_) | Kind::Memory(_) => None,
            Kind::Null(disk) => Some(disk.mapping()),
        }
    }

    /// Whether other disks of its kind show the same memory.
    pub fn shares_mapping(&self) -> bool {
        matches!(self.0, Kind::Null(_))
    }

    /// The memory from which `length` bytes can be read without a buffer in between: (mapping,
    /// offset in it).
    #[inline(always)]
    pub fn window(&self, length: u32) -> Option<(&Arc<Mapping>, usize)> {
        match &self.0 {
            Kind::Null(disk) => Some(disk.window(length)),
            Kind::Memory(_) | Kind::File(_) | Kind::Drive(_) | Kind::Rbd(_) => None,
        }
    }

    /// Makes it known to a ring: returns its place there, if it needs one.
    ///
    /// # Errors
    /// The ring has no place left.
    pub fn add_to(&self, ring: &mut Ring) -> io::Result<Option<FileSlot>> {
        match &self.0 {
            Kind::File(disk) => disk.add_to(ring).map(Some),
            Kind::Drive(disk) => disk.add_to(ring).map(Some),
            Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => Ok(None),
        }
    }

    /// The same place, for a disk that is `slow` just now or is not: what may block at a slow
    /// disk goes to threads of the kernel.
    #[must_use]
    pub fn slot_while(&self, file: FileSlot, slow: bool) -> FileSlot {
        match &self.0 {
            Kind::File(disk) if slow => file.with(disk.handover_while_slow()),
            Kind::File(disk) => file.with(disk.handover()),
            Kind::Drive(_) | Kind::Rbd(_) | Kind::Memory(_) | Kind::Null(_) => file,
        }
    }

    /// Starts an operation, or goes on with one after a pause; `file` is this backend's place in the ring, if it has one.
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

    /// Goes on with an operation after the ring finished a step of it.
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

/// What to look at when a disk does not answer.
#[must_use]
pub fn where_to_look(path: &Path) -> &'static str {
    if path.to_string_lossy().starts_with("rbd:") {
        "look at the Ceph cluster by `ceph -s`, and whether this machine reaches all of its OSDs"
    } else {
        "look in the kernel's log for a disk, or a server of a network file system, that does \
         not answer"
    }
}
