//! RETH (IBTA 9.3.3).

use super::{Header, field};

/// RDMA extended transport header: a range of the responder's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reth {
    /// VA: virtual address at the responder.
    pub va: u64,
    /// R_Key.
    pub rkey: u32,
    /// DMALen: length of the whole message in bytes.
    pub dma_len: u32,
}

impl Header for Reth {
    const LEN: usize = 16;

    fn read(b: &[u8]) -> Self {
        Self {
            va: field::u64(b, 0),
            rkey: field::u32(b, 8),
            dma_len: field::u32(b, 12),
        }
    }

    fn write(&self, out: &mut [u8]) {
        field::put(out, 0, &self.va.to_be_bytes());
        field::put(out, 8, &self.rkey.to_be_bytes());
        field::put(out, 12, &self.dma_len.to_be_bytes());
    }
}
