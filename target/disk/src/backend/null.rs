use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cairn_base::Mapping;

use super::{BlockIo, BlockOp, Errno, Geometry};
use crate::ring::Ring;

#[derive(Debug)]
pub(super) struct NullDisk {
    zeroes: Arc<Mapping>,
    block_bytes: u32,
    blocks: AtomicU64,
}

fn zeroes(length: usize) -> io::Result<Arc<Mapping>> {
    static LAST: Mutex<Weak<Mapping>> = Mutex::new(Weak::new());
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(zeroes) = last.upgrade().filter(|zeroes| zeroes.len() >= length) {
        return Ok(zeroes);
    }
    let zeroes = Arc::new(Mapping::anonymous(length)?);
    *last = Arc::downgrade(&zeroes);
    Ok(zeroes)
}

impl NullDisk {
    pub(super) fn new(bytes: u64, block_bytes: u32, transfer_bytes: u32) -> io::Result<Self> {
        Ok(Self {
            zeroes: zeroes(transfer_bytes as usize)?,
            block_bytes,
            blocks: AtomicU64::new(bytes / u64::from(block_bytes)),
        })
    }

    pub(super) fn accept_size(&self, bytes: u64) -> bool {
        let blocks = bytes / u64::from(self.block_bytes);
        self.blocks.swap(blocks, Ordering::Relaxed) != blocks
    }

    pub(super) fn mapping(&self) -> &Arc<Mapping> {
        &self.zeroes
    }

    pub(super) fn geometry(&self) -> Geometry {
        Geometry {
            block_bytes: self.block_bytes,
            blocks: self.blocks.load(Ordering::Relaxed),
            memory_alignment: 1,
            boundary: 0,
        }
    }

    #[inline]
    pub(super) fn window(&self, length: u32) -> (&Arc<Mapping>, usize) {
        assert!(length as usize <= self.zeroes.len(), "{length} zeroes");
        (&self.zeroes, 0)
    }

    pub(super) fn run(&self, io: &BlockIo, ring: &Ring) -> Result<(), Errno> {
        match io.op {
            BlockOp::Read => ring.copy_in(io.whole(), &self.zeroes, 0),
            BlockOp::Compare | BlockOp::WriteUncorrectable => {
                return Err(Errno(libc::EOPNOTSUPP));
            }
            _ => {}
        }
        Ok(())
    }
}
