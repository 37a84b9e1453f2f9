//! Files and block devices, accessed by io_uring, with `O_DIRECT` where possible.

mod data;
mod failures;
mod size;

use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use uuid::Uuid;

use super::closing::{FormerFile, OpenFile};
use super::discard::{DISCARD_MAX, Zeroing};
use super::formers::Formers;
use super::found::AdmittedPath;
use super::health::Health;
use super::identity::{self, Scope};
use super::open::{self, Alignment};
use super::queue_limits::{QueueLimits, Unit};
use super::{
    Atomic, BlockIo, BlockOp, Claim, Errno, Geometry, OpenError, Preferred, Progress, TRIES_MAX,
    pieces, remedy,
};
use crate::ring::{FileSlot, Ring, ZEROES};
use crate::simulated_disk::SimulatedDisk;
use crate::submission::Handover;
use crate::workers::FATE_UNKNOWN;

/// Maximum bytes of a ring entry, whose length has 31 bits.
const ENTRY_MAX: u64 = 1 << 30;

#[derive(Debug)]
pub(super) struct BlockFile {
    path: PathBuf,
    file: OpenFile,
    block_bytes: u32,
    memory_alignment: u32,
    piece_bytes: u64,
    blocks: AtomicU64,
    health: Health,
    can_grow: bool,
    limits: Option<QueueLimits>,
    direct: bool,
    handover: Handover,
    /// Whether workers submit writes without waiting. On FUSE or NFS, a waiting worker could keep
    /// the file locked.
    submits: bool,
    writes_at_once: AtomicBool,
    zeroing: AtomicU8,
    can_punch: AtomicBool,
    can_deallocate: AtomicBool,
    #[cfg(test)]
    failing_syncs: failures::FailingSyncs,
    #[cfg(test)]
    panicking_writes: std::sync::atomic::AtomicU32,
}

impl BlockFile {
    pub(super) fn open(
        disk: &AdmittedPath,
        block_bytes: Option<u32>,
        claim: Claim,
        formers: &Formers,
    ) -> Result<Self, OpenError> {
        let open::Opened {
            file,
            is_device,
            direct,
        } = open::open(disk, claim, formers)?;
        let path = disk.path();
        let alignment = if direct {
            Alignment::of(&file, is_device)
        } else {
            Alignment::NONE
        };
        let block_bytes = open::choose_block_bytes(path, block_bytes, alignment.offset)?;
        let largest = is_device.then(|| pieces::largest_request(&file)).flatten();
        let limits = is_device.then(|| QueueLimits::of(&file)).flatten();
        let can_deallocate = !is_device || limits.is_some_and(|limits| limits.discard > 0);
        let handover = Handover::of(&file, direct, is_device);
        let disk = Self {
            path: path.to_owned(),
            file,
            block_bytes,
            memory_alignment: alignment.memory,
            piece_bytes: largest.map_or(ENTRY_MAX, |largest| largest.min(ENTRY_MAX)),
            blocks: AtomicU64::new(0),
            health: Health::default(),
            can_grow: !is_device,
            limits,
            direct,
            handover,
            submits: handover.reads,
            writes_at_once: AtomicBool::new(true),
            zeroing: AtomicU8::new(Zeroing::Range as u8),
            can_punch: AtomicBool::new(true),
            can_deallocate: AtomicBool::new(can_deallocate),
            #[cfg(test)]
            failing_syncs: failures::FailingSyncs::default(),
            #[cfg(test)]
            panicking_writes: 0.into(),
        };
        let bytes = disk
            .measure()
            .map_err(|error| OpenError::new(format!("{}: {error}", path.display())))?;
        disk.accept_size(bytes);
        disk.warn_of_torn_blocks();
        if disk.geometry().blocks == 0 {
            return Err(OpenError::new(format!(
                "{} has {bytes} bytes, less than one block of {block_bytes}: name a disk image or a \
                 block device",
                path.display()
            )));
        }
        remedy::warn_of_memory(path, &disk.file);
        Ok(disk)
    }

    pub(super) fn deallocates_to_zeroes(&self) -> bool {
        self.can_grow
    }

    pub(super) fn preferred(&self) -> Option<Preferred> {
        let limits = self.limits?;
        let blocks = |bytes: u64| (bytes / u64::from(self.block_bytes)).max(1) as u32;
        let (write, deallocate) = (blocks(limits.write), blocks(limits.discard));
        Some(Preferred {
            write,
            write_alignment: write,
            optimal_write: blocks(limits.optimal).max(write),
            deallocate,
            deallocate_alignment: deallocate,
        })
    }

    /// Warns if a power failure can tear a block, although AWUPF reports at least one block as
    /// atomic.
    fn warn_of_torn_blocks(&self) {
        let keeps = |limits: &QueueLimits| limits.keeps_blocks_whole(self.block_bytes);
        if self.limits.as_ref().is_none_or(keeps) {
            return;
        }
        // Logged when the configuration is applied.
        tracing::warn!(
            path = %self.path.display(), block_bytes = self.block_bytes,
            "a block of the namespace spans several blocks of the device: after a power failure, \
             a block can be partly old and partly new, which hosts do not expect; leave out \
             block_size"
        );
    }

    /// Returns the device's atomic unit if a single `O_DIRECT` request can write it, or else one
    /// block.
    pub(super) fn atomic(&self) -> Atomic {
        let unit = self.limits.and_then(|limits| limits.unit);
        let fits = |unit: &Unit| self.direct && unit.bytes <= self.piece_bytes;
        let unit = unit.filter(fits);
        unit.map_or(Atomic::BLOCK, |unit| unit.in_blocks(self.block_bytes))
    }

    pub(super) fn identity(&self, scope: Scope<'_>) -> io::Result<Uuid> {
        identity::of(&self.file, &self.path, scope)
    }

    pub(super) fn place(&self) -> (u64, u64) {
        self.file.place()
    }

    pub(super) fn former(&self) -> FormerFile {
        self.file.former()
    }

    pub(super) fn let_go(&self) {
        self.file.let_go();
    }

    pub(super) fn flush(&self) -> io::Result<()> {
        self.check_size();
        if self.health.refuses(BlockOp::Flush) {
            return Err(io::Error::other("acknowledged writes were lost before"));
        }
        self.sync()
    }

    pub(super) fn verify_flush(&self) -> io::Result<()> {
        if !self.health.must_verify() {
            return Ok(());
        }
        self.sync()?;
        self.health.flushes_again();
        // Logged after a reload.
        tracing::warn!(
            path = %self.path.display(),
            "the disk can flush again: writes acknowledged before its failure may be lost"
        );
        Ok(())
    }

    pub(super) fn is_cut(&self) -> bool {
        self.health.is_cut()
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.health.is_deleted()
    }

    pub(super) fn is_displaced(&self) -> bool {
        self.health.is_displaced()
    }

    pub(super) fn is_moved(&self) -> bool {
        self.health.is_moved()
    }

    pub(super) fn is_failed(&self) -> bool {
        self.health.is_failed()
    }

    fn sync(&self) -> io::Result<()> {
        let synced = match SimulatedDisk::find(self.file.as_raw_fd()) {
            Some(disk) => disk.flush(),
            None => self.file.sync_data(),
        };
        #[cfg(test)]
        let synced = synced.and_then(|()| self.fail_sync().map_err(io::Error::from_raw_os_error));
        if let Err(error) = &synced {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            self.health.sync_failed(&self.path, errno);
        }
        synced
    }

    #[cfg(test)]
    pub(super) fn can_deallocate(&self) -> bool {
        self.can_deallocate.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn with_requests_of(self, piece_bytes: u64) -> Self {
        Self {
            piece_bytes,
            ..self
        }
    }

    pub(super) fn add_to(&self, ring: &mut Ring) -> io::Result<FileSlot> {
        ring.add_file(self.file.keep(), self.handover())
    }

    pub(crate) fn handover(&self) -> Handover {
        self.handover
    }

    pub(crate) fn handover_while_slow(&self) -> Handover {
        if self.can_grow {
            Handover::ALL
        } else {
            self.handover
        }
    }

    pub(super) fn geometry(&self) -> Geometry {
        Geometry {
            block_bytes: self.block_bytes,
            blocks: self.blocks.load(Ordering::Relaxed),
            memory_alignment: self.memory_alignment,
            boundary: self
                .limits
                .map_or(0, |limits| limits.boundary(self.block_bytes)),
        }
    }

    pub(super) fn step(
        &self,
        io: &mut BlockIo,
        ring: &mut Ring,
        file: FileSlot,
        tag: u64,
    ) -> Progress {
        let (offset, rest) = io.rest();
        let size = rest.min(ENTRY_MAX) as u32;
        if io.is_stopped() && (rest > 0 || io.op == BlockOp::Flush) {
            return Progress::Done(Err(Errno(libc::ECANCELED)));
        }
        if self.must_look(io, file) {
            self.check_size();
        }
        if self.health.refuses(io.op) {
            return Progress::Done(Err(Errno(libc::EIO)));
        }
        io.pieces.begin();
        match io.op {
            BlockOp::Flush => ring.sync(tag, file),
            _ if rest == 0 => return self.finish(io, ring, file, tag),
            BlockOp::Read | BlockOp::Write { .. } => self.move_data(io, ring, file, tag),
            BlockOp::Verify => {
                let span = io.memory();
                ring.read(tag, file, offset, span.part(0, size.min(span.length)));
            }
            BlockOp::WriteZeroes {
                deallocate,
                durable,
            } => {
                let method = self.zeroing(deallocate);
                io.method = method as u8;
                match method {
                    Zeroing::Range => {
                        let mode = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
                        ring.fallocate(tag, self.with(file), offset, rest, mode);
                    }
                    Zeroing::Punch => self.punch(ring, tag, file, offset, rest),
                    Zeroing::Write => {
                        let span = ring.zeroes(size.min(ZEROES));
                        let durable = durable && self.direct;
                        self.write_in_time(ring, tag, file, (offset, span), durable);
                    }
                }
            }
            BlockOp::Deallocate if self.can_deallocate.load(Ordering::Relaxed) => {
                if self.can_grow {
                    self.punch(ring, tag, file, offset, rest);
                } else {
                    // On a device, the kernel zeroes a punched hole, often by writing. A discard is
                    // faster.
                    let length = rest.min(DISCARD_MAX) as u32;
                    ring.discard(tag, self.file.keep(), offset, length);
                }
            }
            BlockOp::Deallocate | BlockOp::Advise => return Progress::Done(Ok(())),
            BlockOp::Compare | BlockOp::WriteUncorrectable => {
                return Progress::Done(Err(Errno(libc::EOPNOTSUPP)));
            }
        }
        Progress::Pending
    }

    /// True if the size must be checked first, because the step could extend a truncated file, or
    /// report lost data as durable.
    #[inline]
    fn must_look(&self, io: &BlockIo, file: FileSlot) -> bool {
        match io.op {
            BlockOp::Read
            | BlockOp::Compare
            | BlockOp::Verify
            | BlockOp::WriteUncorrectable
            | BlockOp::Advise => false,
            BlockOp::Write { .. } if io.done == io.length => self.syncs_apart(io.op),
            BlockOp::Write { .. } => !self.asks_at_once(io, file),
            BlockOp::WriteZeroes { .. } | BlockOp::Deallocate | BlockOp::Flush => true,
        }
    }

    pub(super) fn resume(
        &self,
        io: &mut BlockIo,
        result: Result<u32, i32>,
        ring: &mut Ring,
        file: FileSlot,
        tag: u64,
    ) -> Progress {
        let several = io.pieces.several();
        let Some(result) = io.pieces.end_one(result) else {
            return Progress::Pending;
        };
        #[cfg(test)]
        let result = self.distort(io, result);
        let moved = match result {
            Err(errno @ (libc::EAGAIN | libc::EOPNOTSUPP)) if self.asked_at_once(io) => {
                if errno == libc::EOPNOTSUPP {
                    self.writes_at_once.store(false, Ordering::Relaxed);
                }
                io.may_wait = true;
                0
            }
            Err(errno) if (several || io.is_stopped()) && self.may_try_again(io, errno) => 0,
            Err(errno) if io.tries < TRIES_MAX && self.may_try_again(io, errno) => {
                io.tries += 1;
                return Progress::Later;
            }
            Err(errno) => return self.recover(io, errno, ring, file, tag),
            Ok(_) if io.op == BlockOp::Flush || io.syncing => {
                // The kernel reports a lost write only once, possibly to another operation. This
                // operation must then fail, too.
                let refused = self.health.refuses(io.op);
                return Progress::Done(if refused {
                    Err(Errno(libc::EIO))
                } else {
                    Ok(())
                });
            }
            Ok(0)
                if matches!(
                    io.op,
                    BlockOp::Read | BlockOp::Verify | BlockOp::Write { .. }
                ) =>
            {
                let expected = self.blocks.load(Ordering::Relaxed) * u64::from(self.block_bytes);
                if io.offset + io.done < expected {
                    self.health.cut_short(&self.path, expected);
                }
                return Progress::Done(Err(Errno(libc::EIO)));
            }
            Ok(0) => io.length - io.done,
            Ok(bytes) => u64::from(bytes),
        };
        io.done += moved;
        io.tries = 0;
        self.step(io, ring, file, tag)
    }

    fn finish(&self, io: &mut BlockIo, ring: &mut Ring, file: FileSlot, tag: u64) -> Progress {
        if !self.syncs_apart(io.op) {
            return Progress::Done(Ok(()));
        }
        if io.is_stopped() {
            return Progress::Done(Err(Errno(libc::ECANCELED)));
        }
        io.syncing = true;
        ring.sync(tag, file);
        Progress::Pending
    }

    /// True if a durable operation consists of a change and a separate sync.
    fn syncs_apart(&self, op: BlockOp) -> bool {
        match op {
            BlockOp::Write { durable } => durable && !self.direct,
            BlockOp::WriteZeroes { durable, .. } => durable,
            _ => false,
        }
    }

    fn recover(
        &self,
        io: &mut BlockIo,
        errno: i32,
        ring: &mut Ring,
        file: FileSlot,
        tag: u64,
    ) -> Progress {
        match (io.op, errno) {
            (BlockOp::WriteZeroes { deallocate, .. }, libc::EOPNOTSUPP | libc::ENOSYS)
                if io.method != Zeroing::Write as u8 =>
            {
                if io.method == self.zeroing(deallocate) as u8 {
                    self.zero_otherwise(deallocate);
                }
                self.step(io, ring, file, tag)
            }
            (BlockOp::Deallocate, libc::EOPNOTSUPP | libc::ENOSYS) => {
                if self.can_deallocate.swap(false, Ordering::Relaxed) {
                    // Logged once for each disk and kind of operation.
                    tracing::info!(path = %self.path.display(), "the disk cannot deallocate blocks: Deallocate has no effect");
                }
                Progress::Done(Ok(()))
            }
            (_, FATE_UNKNOWN) => {
                self.health.change_unknown(&self.path);
                Progress::Done(Err(Errno(libc::EIO)))
            }
            _ => {
                if self.loses_writes(io, errno) {
                    self.health.sync_failed(&self.path, errno);
                }
                Progress::Done(Err(Errno(errno)))
            }
        }
    }

    fn zero_otherwise(&self, deallocate: bool) {
        let next = match self.zeroing(deallocate) {
            Zeroing::Range => Zeroing::Punch,
            Zeroing::Punch if self.zeroing(false) == Zeroing::Range => {
                return self.can_punch.store(false, Ordering::Relaxed);
            }
            Zeroing::Punch | Zeroing::Write => Zeroing::Write,
        };
        if self.zeroing.fetch_max(next as u8, Ordering::Relaxed) < next as u8 {
            // Logged once for each disk and kind of operation.
            tracing::info!(
                path = %self.path.display(), instead = %next,
                "the disk does not support a method of writing zeroes"
            );
        }
    }

    fn zeroing(&self, deallocate: bool) -> Zeroing {
        let punches = deallocate && self.can_punch.load(Ordering::Relaxed);
        match self.zeroing.load(Ordering::Relaxed) {
            method if method == Zeroing::Write as u8 => Zeroing::Write,
            method if method == Zeroing::Punch as u8 || punches => Zeroing::Punch,
            _ => Zeroing::Range,
        }
    }
}
