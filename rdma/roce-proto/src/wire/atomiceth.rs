//! AtomicETH and AtomicAckETH (IBTA 9.3.4, 9.5.3).

use super::{Header, field};

/// Atomic extended transport header of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtomicEth {
    /// VA: responder address of 8 bytes, aligned to 8.
    pub va: u64,
    /// R_Key.
    pub rkey: u32,
    /// SwapDt of a compare-and-swap; AddDt of a fetch-and-add.
    pub swap_or_add: u64,
    /// CmpDt: value to compare with.
    pub compare: u64,
}

impl Header for AtomicEth {
    const LEN: usize = 28;

    fn read(b: &[u8]) -> Self {
        Self {
            va: field::u64(b, 0),
            rkey: field::u32(b, 8),
            swap_or_add: field::u64(b, 12),
            compare: field::u64(b, 20),
        }
    }

    fn write(&self, out: &mut [u8]) {
        field::put(out, 0, &self.va.to_be_bytes());
        field::put(out, 8, &self.rkey.to_be_bytes());
        field::put(out, 12, &self.swap_or_add.to_be_bytes());
        field::put(out, 20, &self.compare.to_be_bytes());
    }
}

/// Atomic acknowledge extended transport header of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtomicAckEth {
    /// OrigRemDt: value before the operation.
    pub original: u64,
}

impl Header for AtomicAckEth {
    const LEN: usize = 8;

    fn read(b: &[u8]) -> Self {
        Self {
            original: field::u64(b, 0),
        }
    }

    fn write(&self, out: &mut [u8]) {
        field::put(out, 0, &self.original.to_be_bytes());
    }
}
