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
mod discard;
mod health;
mod identity;
mod memory;
mod null;
mod open;
mod pieces;
mod queue_limits;
mod rbd;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cairn_config::{RbdImage, Uuid};
use cairn_rdma::Mapping;
use nvme_proto::namespace::Preferred;

pub(crate) use block_file::BlockFile;
pub(crate) use memory::MemoryDisk;
pub(crate) use null::NullDisk;
pub(crate) use rbd::{RbdDisk, name_of, where_to_look};

use pieces::Pieces;

use crate::ring::{FileSlot, Ring, Span};

/// Bytes of a logical block where neither the administrator nor the disk says.
const BLOCK_BYTES_DEFAULT: u32 = 512;

/// What to do with a range of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockOp {
    /// Disk to buffer.
    Read,
    /// Buffer to disk; `durable`: done only when on stable storage (FUA).
    Write { durable: bool },
    /// Read everything and keep nothing. The buffer may be shorter than the range.
    Verify,
    /// Make the range read as zeroes; `deallocate`: preferably by giving it back.
    WriteZeroes { deallocate: bool, durable: bool },
    /// Give the range back, if that can be done: advice, not an order.
    Deallocate,
    /// Make all finished writes durable.
    Flush,
}

impl BlockOp {
    /// Whether it changes blocks.
    #[inline(always)]
    pub(crate) fn changes(self) -> bool {
        match self {
            Self::Read | Self::Verify | Self::Flush => false,
            Self::Write { .. } | Self::WriteZeroes { .. } | Self::Deallocate => true,
        }
    }
}

/// One operation on a backend, on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockIo {
    /// What to do.
    pub(crate) op: BlockOp,
    /// First byte on the disk.
    pub(crate) offset: u64,
    /// Bytes on the disk.
    pub(crate) length: u64,
    /// The bytes in memory, for operations that move any.
    pub(crate) span: Option<Span>,
    /// Bytes that are done.
    done: u64,
    /// What is under way of the next ones.
    pieces: Pieces,
    /// Whether the last step, making it durable, is under way.
    syncing: bool,
    /// Whether nothing more of it may be submitted.
    stopped: bool,
    /// How many times in a row the disk asked to try again.
    tries: u8,
    /// Whether a write may wait for space in the file: the file's size was looked at.
    may_wait: bool,
    /// By which of the disk's ways its step under way zeroes or discards. What the disk
    /// answers is about this way, whatever other operations have found out meanwhile.
    way: u8,
}

/// How many times in a row a disk may ask to try again. With the pauses between, this is
/// about two seconds.
const TRIES_MAX: u8 = 50;

/// The longest pause between two tries, in milliseconds.
const PAUSE_MAX_MS: u64 = 50;

impl BlockIo {
    /// An operation that has not begun.
    pub(crate) fn new(op: BlockOp, offset: u64, length: u64, span: Option<Span>) -> Self {
        Self {
            op,
            offset,
            length,
            span,
            done: 0,
            pieces: Pieces::default(),
            syncing: false,
            stopped: false,
            tries: 0,
            may_wait: false,
            way: 0,
        }
    }

    /// Nothing more of it is submitted: its next step ends it, with `ECANCELED` unless it is
    /// complete by then.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }

    /// Whether it was stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// How long to wait before the next try, which the disk asked for: twice as long each
    /// time, up to a limit.
    pub(crate) fn pause(&self) -> Duration {
        let doubled = 1_u64 << u32::from(self.tries.saturating_sub(1)).min(16);
        Duration::from_millis(doubled.min(PAUSE_MAX_MS))
    }

    /// The bytes in memory of an operation that has some.
    fn memory(&self) -> Span {
        self.span
            .expect("an operation that moves bytes has a buffer")
    }

    /// The bytes in memory, exactly as many as on the disk.
    fn whole(&self) -> Span {
        let length = u32::try_from(self.length).expect("a transfer is at most MDTS");
        self.memory().part(0, length)
    }

    /// The disk's bytes that are left to do.
    fn rest(&self) -> (u64, u64) {
        (self.offset + self.done, self.length - self.done)
    }
}

/// An error of the system, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// How far an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Progress {
    /// The ring has it: [`Backend::resume`] with its completion.
    Pending,
    /// The disk asks to try again: [`Backend::begin`] after a [pause](BlockIo::pause). Only
    /// [`Backend::resume`] says so.
    Later,
    /// It ended.
    Done(Result<(), Errno>),
}

/// How a backend's blocks are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Bytes of a logical block: 512 or 4096.
    pub(crate) block_bytes: u32,
    /// Logical blocks.
    pub(crate) blocks: u64,
    /// Bytes that the address of a buffer must be a multiple of.
    pub(crate) memory_alignment: u32,
}

/// How a disk is to be used, and who else may use it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Claim {
    /// It is not written to.
    pub(crate) read_only: bool,
    /// Others that say the same may write to it, too.
    pub(crate) shared: bool,
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
    pub(crate) fn late(path: &Path, waited: Duration) -> Self {
        Self::new(format!(
            "{} has not opened for {} seconds: {}",
            path.display(),
            waited.as_secs(),
            where_to_look(path)
        ))
    }

    /// The thread that opened it panicked.
    pub(crate) fn panicked(path: &Path) -> Self {
        Self::new(format!(
            "{}: opening it failed by a bug in Cairn, which is an error in the log: report that \
             line, and reload to try again",
            path.display()
        ))
    }

    /// The system gives no thread to open it on.
    pub(crate) fn no_thread(error: &io::Error) -> Self {
        Self::new(format!(
            "no thread can be had to open it: {error}: raise the limit on tasks (TasksMax in the \
             service, `ulimit -u`)"
        ))
    }
}

/// What a namespace's blocks live on.
#[derive(Debug)]
pub(crate) enum Backend {
    /// A file or block device, by io_uring.
    File(BlockFile),
    /// An image of a Ceph cluster, by librbd.
    Rbd(RbdDisk),
    /// Memory that devices reach by themselves.
    Memory(MemoryDisk),
    /// Nothing: reads give zeroes, writes vanish.
    Null(NullDisk),
}

impl Backend {
    /// A file or block device.
    ///
    /// # Errors
    /// It cannot be opened, or not with that block size.
    pub(crate) fn open_file(
        path: &Path,
        block_bytes: Option<u32>,
        claim: Claim,
    ) -> Result<Self, OpenError> {
        BlockFile::open(path, block_bytes, claim).map(Self::File)
    }

    /// An image of a Ceph cluster. `on_change` is called when its size is another or it fails.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn open_image(
        image: &RbdImage,
        block_bytes: Option<u32>,
        claim: Claim,
        on_change: Box<dyn Fn() + Send>,
    ) -> Result<Self, OpenError> {
        RbdDisk::open(image, block_bytes, claim, on_change).map(Self::Rbd)
    }

    /// Whether it has its data elsewhere, and is asked for them: it takes buffers, and turns.
    #[inline(always)]
    pub(crate) fn is_asked(&self) -> bool {
        matches!(self, Self::File(_) | Self::Rbd(_))
    }

    /// A disk in memory.
    ///
    /// # Errors
    /// There is not so much memory.
    pub(crate) fn memory(bytes: u64, block_bytes: Option<u32>) -> Result<Self, OpenError> {
        MemoryDisk::new(bytes, block_bytes.unwrap_or(BLOCK_BYTES_DEFAULT))
            .map(Self::Memory)
            .map_err(|error| OpenError::new(format!("no memory for {bytes} bytes: {error}")))
    }

    /// A disk that is none, of which a command reads `transfer_bytes` at most.
    ///
    /// # Errors
    /// There is no memory for the zeroes.
    pub(crate) fn null(
        bytes: u64,
        block_bytes: Option<u32>,
        transfer_bytes: u32,
    ) -> Result<Self, OpenError> {
        NullDisk::new(
            bytes,
            block_bytes.unwrap_or(BLOCK_BYTES_DEFAULT),
            transfer_bytes,
        )
        .map(Self::Null)
        .map_err(|error| OpenError::new(format!("no memory for zeroes: {error}")))
    }

    /// Whether deallocated blocks are given back and read as zeroes.
    pub(crate) fn deallocates_to_zeroes(&self) -> bool {
        match self {
            Self::File(disk) => disk.deallocates_to_zeroes(),
            Self::Rbd(_) => true,
            Self::Memory(_) | Self::Null(_) => false,
        }
    }

    /// The sizes in which it works best, if it says.
    pub(crate) fn preferred(&self) -> Option<Preferred> {
        match self {
            Self::File(disk) => disk.preferred(),
            Self::Rbd(disk) => Some(disk.preferred()),
            Self::Memory(_) | Self::Null(_) => None,
        }
    }

    /// What tells it from all other disks. `shared`: other machines export it, too. That of
    /// memory is new each time, as what it holds is.
    ///
    /// # Errors
    /// It cannot be found out.
    pub(crate) fn identity(&self, shared: bool) -> Result<Uuid, OpenError> {
        match self {
            Self::File(disk) => disk.identity(shared),
            Self::Rbd(disk) => Ok(disk.identity()),
            Self::Memory(_) | Self::Null(_) => identity::random(),
        }
        .map_err(|error| OpenError::new(format!("cannot find out which disk it is: {error}")))
    }

    /// The file or device of its own that it is on this machine: (device, inode).
    pub(crate) fn place(&self) -> Option<(u64, u64)> {
        match self {
            Self::File(disk) => Some(disk.place()),
            Self::Rbd(_) | Self::Memory(_) | Self::Null(_) => None,
        }
    }

    /// Its bytes, if it says by itself when they change.
    pub(crate) fn bytes_told(&self) -> Option<u64> {
        match self {
            Self::Rbd(disk) => Some(disk.bytes()),
            Self::File(_) | Self::Memory(_) | Self::Null(_) => None,
        }
    }

    /// Its bytes now, if they can change. Blocks as long as the disk takes.
    pub(crate) fn measure(&self) -> io::Result<Option<u64>> {
        match self {
            Self::File(disk) => disk.measure().map(Some),
            Self::Rbd(disk) => disk.measure().map(Some),
            Self::Memory(_) | Self::Null(_) => Ok(None),
        }
    }

    /// Takes over what [`measure`](Self::measure) found; returns whether it is another size.
    pub(crate) fn accept_size(&self, bytes: u64) -> bool {
        match self {
            Self::File(disk) => disk.accept_size(bytes),
            Self::Rbd(disk) => disk.accept_size(bytes),
            Self::Memory(_) | Self::Null(_) => false,
        }
    }

    /// Takes over the size as it is now; returns whether it changed.
    #[cfg(test)]
    pub(crate) fn refresh(&self) -> io::Result<bool> {
        let bytes = self.measure()?;
        Ok(bytes.is_some_and(|bytes| self.accept_size(bytes)))
    }

    /// Makes what was written durable, and blocks until it is.
    pub(crate) fn flush(&self) -> io::Result<()> {
        match self {
            Self::File(disk) => disk.flush(),
            Self::Rbd(disk) => disk.flush(),
            Self::Memory(_) | Self::Null(_) => Ok(()),
        }
    }

    /// Looks, after a failed flush, whether it can flush again. Blocks as long as that takes.
    pub(crate) fn recover(&self) -> io::Result<()> {
        match self {
            Self::File(disk) => disk.verify_flush(),
            Self::Rbd(disk) => disk.recover(),
            Self::Memory(_) | Self::Null(_) => Ok(()),
        }
    }

    /// Whether it lost data, so that commands fail until a reload.
    pub(crate) fn is_failed(&self) -> bool {
        match self {
            Self::File(disk) => disk.is_failed(),
            Self::Rbd(disk) => disk.is_failed(),
            Self::Memory(_) | Self::Null(_) => false,
        }
    }

    /// How its blocks are laid out now: a file can grow.
    pub(crate) fn geometry(&self) -> Geometry {
        match self {
            Self::File(disk) => disk.geometry(),
            Self::Rbd(disk) => disk.geometry(),
            Self::Memory(disk) => disk.geometry(),
            Self::Null(disk) => disk.geometry(),
        }
    }

    /// The memory that its windows show, for the devices to know it.
    pub(crate) fn mapping(&self) -> Option<&Arc<Mapping>> {
        match self {
            Self::File(_) | Self::Rbd(_) => None,
            Self::Memory(disk) => Some(disk.mapping()),
            Self::Null(disk) => Some(disk.mapping()),
        }
    }

    /// The memory that `length` bytes at `offset` can be moved to or from
    /// without a buffer in between: (mapping, offset in it). `write` says which way.
    #[inline(always)]
    pub(crate) fn window(
        &self,
        write: bool,
        offset: u64,
        length: u32,
    ) -> Option<(&Arc<Mapping>, usize)> {
        match self {
            Self::Memory(disk) => Some(disk.window(offset, length)),
            Self::Null(disk) if !write => Some(disk.window(length)),
            Self::Null(_) | Self::File(_) | Self::Rbd(_) => None,
        }
    }

    /// Starts an operation, or goes on with one after a pause; `file` is this backend's place in the ring, if it has one.
    pub(crate) fn begin(
        &self,
        io: &mut BlockIo,
        ring: &mut Ring,
        file: Option<FileSlot>,
        tag: u64,
    ) -> Progress {
        match self {
            Self::File(disk) => disk.step(io, ring, registered(file), tag),
            Self::Rbd(disk) => disk.step(io, ring, tag),
            Self::Memory(disk) => Progress::Done(disk.run(io, ring)),
            Self::Null(disk) => Progress::Done(disk.run(io, ring)),
        }
    }

    /// Goes on with an operation after the ring finished a step of it.
    pub(crate) fn resume(
        &self,
        io: &mut BlockIo,
        result: Result<u32, i32>,
        ring: &mut Ring,
        file: Option<FileSlot>,
        tag: u64,
    ) -> Progress {
        match self {
            Self::File(disk) => disk.resume(io, result, ring, registered(file), tag),
            Self::Rbd(disk) => disk.resume(io, result, ring, tag),
            Self::Memory(_) | Self::Null(_) => unreachable!("these end when they begin"),
        }
    }
}

fn registered(file: Option<FileSlot>) -> FileSlot {
    file.expect("a reactor registers a disk's file before its first operation")
}
