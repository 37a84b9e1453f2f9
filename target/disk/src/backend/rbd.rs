//! Images of a Ceph cluster (RBD), by librbd. Differences from a disk:
//!
//! * If an operation exceeds the image's end, librbd truncates it and reports success. The size is
//!   therefore checked before and after each operation.
//! * A discard below 64 KiB has no effect, so zeroing uses a call that always zeroes.
//! * The cache is disabled. Acknowledged writes are on all replicas, so FUA costs nothing.
//! * An operation cannot be cancelled. Its buffer is in use until the cluster replies.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_base::ImageSpec;
use cairn_rbd::{Access, Image, Work};
use uuid::Uuid;

use super::{
    BLOCK_BYTES_DEFAULT, BlockIo, BlockOp, Claim, Errno, Geometry, OpenError, Preferred, Progress,
    TRIES_MAX, identity,
};
use crate::ring::{Ring, Span};

/// Maximum bytes zeroed or discarded by one call. librbd sends the requests to all objects of a
/// call at once.
const PIECE_MAX: u64 = 256 << 20;

/// Allocation unit of an OSD. For a smaller write, the OSD must read first.
const WRITE_BYTES: u64 = 4096;

/// Value of Ceph's option `rbd_discard_granularity_bytes`.
const DISCARD_BYTES: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct RbdDisk {
    image: Image,
    block_bytes: u32,
    blocks: AtomicU64,
}

impl RbdDisk {
    pub(super) fn open(
        spec: &ImageSpec,
        block_bytes: Option<u32>,
        claim: Claim,
        on_change: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<Self, OpenError> {
        let access = Access {
            read_only: claim.read_only,
            shared: claim.shared,
        };
        let image = Image::open(spec, access, on_change)
            .map_err(|error| OpenError::new(error.to_string()))?;
        let block_bytes = block_bytes.unwrap_or(BLOCK_BYTES_DEFAULT);
        let blocks = image.bytes() / u64::from(block_bytes);
        if blocks == 0 {
            return Err(OpenError::new(format!(
                "{} is smaller than one block of {block_bytes} bytes: `rbd resize` gives it a size",
                image.name()
            )));
        }
        Ok(Self {
            image,
            block_bytes,
            blocks: AtomicU64::new(blocks),
        })
    }

    pub(super) fn let_go(&self) {
        self.image.let_go();
    }

    pub(super) fn preferred(&self) -> Preferred {
        let layout = self.image.layout();
        let blocks = |bytes: u64| (bytes / u64::from(self.block_bytes)).max(1) as u32;
        let write = blocks(WRITE_BYTES.min(layout.stripe_bytes));
        let deallocate = blocks(DISCARD_BYTES.min(layout.object_bytes));
        Preferred {
            write,
            write_alignment: write,
            optimal_write: blocks(layout.stripe_bytes).max(write),
            deallocate,
            deallocate_alignment: deallocate,
        }
    }

    pub(super) fn geometry(&self) -> Geometry {
        Geometry {
            block_bytes: self.block_bytes,
            blocks: self.blocks.load(Ordering::Relaxed),
            memory_alignment: 1,
            boundary: 0,
        }
    }

    pub(super) fn identity(&self) -> Uuid {
        identity::derived(self.image.identity())
    }

    pub(super) fn measure(&self) -> io::Result<u64> {
        self.image.measure().map_err(io::Error::from_raw_os_error)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.image.bytes()
    }

    pub(super) fn accept_size(&self, bytes: u64) -> bool {
        let blocks = bytes / u64::from(self.block_bytes);
        self.blocks.swap(blocks, Ordering::Relaxed) != blocks
    }

    /// Flushes the image. A failure loses no data, because acknowledged writes are on the OSDs.
    pub(super) fn flush(&self) -> io::Result<()> {
        if let Err(errno) = self.image.flush() {
            // Logged at the shutdown of the target or of a controller.
            tracing::debug!(
                image = self.image.name(), error = %io::Error::from_raw_os_error(errno),
                "the image did not flush at its close; acknowledged writes are on the OSDs"
            );
        }
        Ok(())
    }

    pub(super) fn is_failed(&self) -> bool {
        self.image.failure().is_some()
    }

    pub(super) fn recover(&self) -> io::Result<()> {
        let Some(errno) = self.image.failure() else {
            return Ok(());
        };
        self.image.open_again().map_err(io::Error::other)?;
        // Logged after a reload.
        tracing::info!(
            image = self.image.name(), was = %io::Error::from_raw_os_error(errno),
            "the image is open again, with a new client of its cluster"
        );
        Ok(())
    }

    pub(super) fn step(&self, io: &mut BlockIo, ring: &mut Ring, tag: u64) -> Progress {
        let (offset, rest) = io.rest();
        if io.is_stopped() && (rest > 0 || io.op == BlockOp::Flush) {
            return Progress::Done(Err(Errno(libc::ECANCELED)));
        }
        if let Err(errno) = self.check(io) {
            return Progress::Done(Err(errno));
        }
        let piece = piece(io);
        let work = match io.op {
            BlockOp::Flush => Work::Flush,
            BlockOp::Advise => return Progress::Done(Ok(())),
            _ if rest == 0 => return Progress::Done(Ok(())),
            BlockOp::Read | BlockOp::Verify => {
                let memory = ring.shared_memory(span(io, piece));
                Work::Read { offset, memory }
            }
            BlockOp::Compare | BlockOp::WriteUncorrectable => {
                return Progress::Done(Err(Errno(libc::EOPNOTSUPP)));
            }
            BlockOp::Write { .. } => {
                let memory = ring.shared_memory(span(io, piece));
                Work::Write { offset, memory }
            }
            BlockOp::WriteZeroes { deallocate, .. } => Work::WriteZeroes {
                offset,
                length: piece as usize,
                allocated: !deallocate,
            },
            BlockOp::Deallocate => Work::Discard {
                offset,
                length: piece,
            },
        };
        ring.work_on_image(tag, &self.image, &work, io.op.changes());
        Progress::Pending
    }

    pub(super) fn resume(
        &self,
        io: &mut BlockIo,
        result: Result<u32, i32>,
        ring: &mut Ring,
        tag: u64,
    ) -> Progress {
        let piece = piece(io);
        match result {
            Err(libc::EAGAIN | libc::EINTR) if io.tries < TRIES_MAX && !io.is_stopped() => {
                io.tries += 1;
                return Progress::Later;
            }
            Err(errno) => return Progress::Done(Err(self.explain(errno))),
            Ok(_) if io.op == BlockOp::Flush => return Progress::Done(Ok(())),
            Ok(bytes) if is_read(io.op) && u64::from(bytes) != piece => {
                return Progress::Done(Err(Errno(libc::EIO)));
            }
            Ok(_) => {}
        }
        io.tries = 0;
        if let Err(errno) = self.check(io) {
            return Progress::Done(Err(errno));
        }
        io.done += piece;
        if io.done == io.length {
            return Progress::Done(Ok(()));
        }
        self.step(io, ring, tag)
    }

    fn check(&self, io: &BlockIo) -> Result<(), Errno> {
        let bytes = self.image.usable_bytes();
        let bytes = bytes.map_err(|errno| self.explain(errno))?;
        let end = io.offset + io.length;
        if io.op != BlockOp::Flush && end > bytes {
            return Err(Errno(libc::EIO));
        }
        Ok(())
    }

    fn explain(&self, errno: i32) -> Errno {
        Errno(match errno {
            libc::ENOENT | libc::EPERM | libc::EACCES => libc::ENODEV,
            libc::EROFS if self.image.failure().is_none() => libc::ESHUTDOWN,
            libc::ETIMEDOUT | libc::ENOTCONN => libc::ESHUTDOWN,
            other => other,
        })
    }
}

fn is_read(op: BlockOp) -> bool {
    matches!(op, BlockOp::Read | BlockOp::Verify)
}

fn piece(io: &BlockIo) -> u64 {
    let (_, rest) = io.rest();
    match io.op {
        BlockOp::Read | BlockOp::Compare | BlockOp::WriteUncorrectable | BlockOp::Write { .. } => {
            rest
        }
        BlockOp::Verify => rest.min(u64::from(io.memory().length)),
        BlockOp::WriteZeroes { .. } | BlockOp::Deallocate => {
            // Pieces end at multiples of `PIECE_MAX`, so that no discard splits an object.
            let (offset, _) = io.rest();
            rest.min(PIECE_MAX - offset % PIECE_MAX)
        }
        BlockOp::Advise | BlockOp::Flush => 0,
    }
}

fn span(io: &BlockIo, piece: u64) -> Span {
    let start = if io.op == BlockOp::Verify { 0 } else { io.done };
    io.memory().part(start as u32, piece as u32)
}
