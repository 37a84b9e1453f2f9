//! The completion queue entry: 16 bytes that end a command.
//!
//! Base, 3.3.3.2; for Fabrics responses 3.3.3.2.1: the response capsule is the
//! CQE alone, its first 8 bytes are the command's result, SQID is reserved and
//! the phase tag is always 0.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::status::Status;

/// Bytes of a completion queue entry.
pub const CQE_BYTES: usize = 16;

/// A completion queue entry.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Cqe {
    /// DW0: the command's result.
    pub dw0: U32,
    /// DW1: the upper half of an 8-byte result (Property Get), else reserved.
    pub dw1: U32,
    /// SQHD: how far the controller has consumed the submission queue.
    /// FFFFh where SQ flow control is disabled.
    pub sqhd: U16,
    /// SQID; reserved over Fabrics.
    pub sqid: U16,
    /// CID of the command that this ends.
    pub cid: U16,
    /// Phase tag in bit 0, status in bits 15:1.
    pub status: U16,
}
assert_size!(Cqe = CQE_BYTES);

impl Cqe {
    /// SQHD of a queue whose flow control was disabled at Connect (Base, 6.3: DISSQFC).
    pub const SQHD_NO_FLOW_CONTROL: u16 = 0xffff;

    /// A Fabrics response: `result` in its first 8 bytes, no SQID, phase 0.
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

    /// DW0 and DW1 as the 8-byte result that Fabrics responses have.
    #[must_use]
    pub fn result(&self) -> u64 {
        u64::from(self.dw0.get()) | u64::from(self.dw1.get()) << 32
    }

    /// How the command ended.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::from_field(self.status.get())
    }

    /// Bit 0 of the status field; 0 over Fabrics.
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
