//! Wire formats, one file for each header.
//!
//! Parsers check lengths and never panic; `emit` panics if `out` is too short. Reserved bits are
//! ignored on receipt and sent as zero (IBTA 5.2).

pub mod aeth;
pub mod atomiceth;
pub mod bth;
pub mod cm;
pub mod deth;
pub mod ethernet;
pub mod frame;
pub mod grh;
pub mod icrc;
pub mod ieth;
pub mod immdt;
pub mod ipv4;
pub mod ipv6;
pub mod mad;
pub mod opcode;
pub mod packet;
pub mod reth;
pub mod udp;

pub use aeth::{Aeth, NakCode, Syndrome};
pub use atomiceth::{AtomicAckEth, AtomicEth};
pub use bth::Bth;
pub use deth::Deth;
pub use ieth::Ieth;
pub use immdt::ImmDt;
pub use opcode::Opcode;
pub use packet::Packet;
pub use reth::Reth;

/// Header of fixed length.
pub trait Header: Sized {
    /// Length in bytes.
    const LEN: usize;

    /// Reads the header from exactly [`Self::LEN`] bytes.
    fn read(bytes: &[u8]) -> Self;

    /// Writes the header to exactly [`Self::LEN`] bytes.
    fn write(&self, out: &mut [u8]);

    /// Parses the header at the start of `bytes`, and returns the rest, or `None` if `bytes` is too
    /// short.
    fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = bytes.split_at_checked(Self::LEN)?;
        Some((Self::read(head), rest))
    }

    /// Writes the header to `out`, and returns the rest.
    fn emit<'a>(&self, out: &'a mut [u8]) -> &'a mut [u8] {
        let (head, rest) = out.split_at_mut(Self::LEN);
        self.write(head);
        rest
    }
}

pub(crate) mod field {
    pub(crate) fn u16(bytes: &[u8], at: usize) -> u16 {
        u16::from_be_bytes([bytes[at], bytes[at + 1]])
    }

    pub(crate) fn u24(bytes: &[u8], at: usize) -> u32 {
        u32::from_be_bytes([0, bytes[at], bytes[at + 1], bytes[at + 2]])
    }

    pub(crate) fn u32(bytes: &[u8], at: usize) -> u32 {
        u32::from_be_bytes(array(bytes, at))
    }

    pub(crate) fn u64(bytes: &[u8], at: usize) -> u64 {
        u64::from_be_bytes(array(bytes, at))
    }

    pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
        let mut out = [0; N];
        out.copy_from_slice(&bytes[at..at + N]);
        out
    }

    pub(crate) fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
        out[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn put_u24(out: &mut [u8], at: usize, value: u32) {
        out[at..at + 3].copy_from_slice(&value.to_be_bytes()[1..]);
    }
}
