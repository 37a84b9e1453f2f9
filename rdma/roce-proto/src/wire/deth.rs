//! DETH (IBTA 9.3.1).

use super::{Header, field};

/// Datagram extended transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deth {
    /// Q_Key, which the destination queue pair compares with its own.
    pub qkey: u32,
    /// SrcQP: sender's queue pair number.
    pub source_qpn: u32,
}

impl Header for Deth {
    const LEN: usize = 8;

    fn read(b: &[u8]) -> Self {
        Self {
            qkey: field::u32(b, 0),
            source_qpn: field::u24(b, 5),
        }
    }

    fn write(&self, out: &mut [u8]) {
        field::put(out, 0, &self.qkey.to_be_bytes());
        out[4] = 0;
        field::put_u24(out, 5, self.source_qpn);
    }
}
