//! Completion queue entry (Base, 3.3.3.2; Fabrics responses: 3.3.3.2.1).

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::status::Status;

/// Bytes of a completion queue entry.
pub const CQE_BYTES: usize = 16;

/// Completion queue entry.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Cqe {
    /// Lower half of the result.
    pub dw0: U32,
    /// Upper half of an 8-byte result (Property Get).
    pub dw1: U32,
    /// Submission queue head; FFFFh without SQ flow control.
    pub sqhd: U16,
    /// SQID; reserved over Fabrics.
    pub sqid: U16,
    /// Command identifier.
    pub cid: U16,
    /// Phase tag in bit 0, status in bits 15:1.
    pub status: U16,
}
assert_size!(Cqe = CQE_BYTES);

impl Cqe {
    /// SQHD without SQ flow control (Base, 6.3, DISSQFC).
    pub const SQHD_NO_FLOW_CONTROL: u16 = 0xffff;

    /// Creates a Fabrics response with an 8-byte result.
    #[must_use]
    pub fn new(cid: u16, sqhd: u16, status: Status, result: u64) -> Self {
        Self {
            dw0: U32::new(result as u32),
            dw1: U32::new((result >> 32) as u32),
            sqhd: U16::new(sqhd),
            sqid: U16::ZERO,
            cid: U16::new(cid),
            status: U16::new(status.to_field(false)),
        }
    }

    /// Result in DW0 and DW1.
    #[must_use]
    pub fn result(&self) -> u64 {
        u64::from(self.dw0.get()) | u64::from(self.dw1.get()) << 32
    }

    /// Status in bits 15:1.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::from_field(self.status.get())
    }

    /// Phase tag; 0 over Fabrics.
    #[must_use]
    pub fn phase(&self) -> bool {
        self.status.get() & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_of_a_failed_response() {
        let cqe = Cqe::new(
            0x1234,
            7,
            Status::INVALID_FIELD.with_dnr(),
            0x0102_0304_0506_0708,
        );
        assert_eq!(
            cqe.as_bytes(),
            [8, 7, 6, 5, 4, 3, 2, 1, 7, 0, 0, 0, 0x34, 0x12, 0x04, 0x80]
        );
        assert_eq!(cqe.status(), Status::INVALID_FIELD.with_dnr());
        assert_eq!(cqe.result(), 0x0102_0304_0506_0708);
        assert!(!cqe.phase());
    }
}
