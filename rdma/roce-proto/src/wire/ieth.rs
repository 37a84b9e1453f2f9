//! IETH (IBTA 9.3.7).

use super::{Header, field};

/// Invalidate extended transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ieth {
    /// R_Key to be invalidated by the receiver.
    pub rkey: u32,
}

impl Header for Ieth {
    const LEN: usize = 4;

    fn read(b: &[u8]) -> Self {
        Self {
            rkey: field::u32(b, 0),
        }
    }

    fn write(&self, out: &mut [u8]) {
        field::put(out, 0, &self.rkey.to_be_bytes());
    }
}
