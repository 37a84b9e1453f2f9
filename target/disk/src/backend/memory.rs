//! A disk in memory.
//!
//! Its mapping is registered with the devices, so data moves between it and
//! the hosts with no buffer in between; only in-capsule data is copied.

use std::io;
use std::sync::Arc;

use cairn_rdma::Mapping;

use super::{BlockIo, BlockOp, Errno, Geometry};
use crate::ring::Ring;

/// Memory that devices reach by themselves. Lost when the process ends.
#[derive(Debug)]
pub(super) struct MemoryDisk {
    mapping: Arc<Mapping>,
    block_bytes: u32,
    bytes: u64,
}

impl MemoryDisk {
    /// A zeroed disk of `bytes`, rounded down to whole blocks.
    pub(super) fn new(bytes: u64, block_bytes: u32) -> io::Result<Self> {
        let bytes = bytes / u64::from(block_bytes) * u64::from(block_bytes);
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        Ok(Self {
            mapping: Arc::new(Mapping::anonymous(length)?),
            block_bytes,
            bytes,
        })
    }

    /// The memory, to register it.
    pub(super) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    pub(super) fn geometry(&self) -> Geometry {
        Geometry {
            block_bytes: self.block_bytes,
            blocks: self.bytes / u64::from(self.block_bytes),
            memory_alignment: 1,
            boundary: 0,
        }
    }

    #[inline]
    pub(super) fn window(&self, offset: u64, length: u32) -> (&Arc<Mapping>, usize) {
        assert!(
            offset + u64::from(length) <= self.bytes,
            "{length} bytes at {offset}"
        );
        (&self.mapping, offset as usize)
    }

    /// Does all of an operation.
    pub(super) fn run(&self, io: &BlockIo, ring: &Ring) -> Result<(), Errno> {
        assert!(
            io.offset + io.length <= self.bytes,
            "{io:?} on {} bytes",
            self.bytes
        );
        let at = io.offset as usize;
        match io.op {
            BlockOp::Read => ring.copy_in(io.whole(), &self.mapping, at),
            BlockOp::Write { .. } => ring.copy_out(io.whole(), &self.mapping, at),
            BlockOp::WriteZeroes { .. } => self.mapping.fill(at, io.length as usize, 0),
            BlockOp::Compare | BlockOp::WriteUncorrectable => {
                return Err(Errno(libc::EOPNOTSUPP));
            }
            // Not given back: the pages are locked for the devices.
            BlockOp::Deallocate | BlockOp::Advise | BlockOp::Verify | BlockOp::Flush => {}
        }
        Ok(())
    }
}
