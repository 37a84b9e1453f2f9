//! UDP header of RoCE v2.

use super::{Header, field};

pub use cairn_rdma::ROCE_PORT;

/// UDP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Udp {
    /// Source port, by which routers spread flows over paths.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Length of header and payload in bytes.
    pub length: u16,
    /// Checksum; 0 if absent, because the ICRC protects the packet.
    pub checksum: u16,
}

impl Header for Udp {
    const LEN: usize = 8;

    fn read(b: &[u8]) -> Self {
        Self {
            source: field::u16(b, 0),
            destination: field::u16(b, 2),
            length: field::u16(b, 4),
            checksum: field::u16(b, 6),
        }
    }

    fn write(&self, out: &mut [u8]) {
        field::put(out, 0, &self.source.to_be_bytes());
        field::put(out, 2, &self.destination.to_be_bytes());
        field::put(out, 4, &self.length.to_be_bytes());
        field::put(out, 6, &self.checksum.to_be_bytes());
    }
}
