//! Immediate data (IBTA 9.3.6).

use super::{Header, field};

/// Immediate data for the receiver's completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImmDt {
    /// Value, big-endian on the wire.
    pub value: u32,
}

impl ImmDt {
    /// Creates immediate data.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self { value }
    }
}

impl Header for ImmDt {
    const LEN: usize = 4;

    fn read(b: &[u8]) -> Self {
        Self {
            value: field::u32(b, 0),
        }
    }

    fn write(&self, out: &mut [u8]) {
        field::put(out, 0, &self.value.to_be_bytes());
    }
}
