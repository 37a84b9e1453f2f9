//! DREQ (IBTA 12.6.10).

use super::{Body, CommIds};
use crate::wire::field;

/// Private data length in bytes.
pub const PRIVATE_LEN: usize = 220;

/// Request to end a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dreq {
    /// Communication IDs.
    pub ids: CommIds,
    /// Receiver's queue pair number.
    pub remote_qpn: u32,
    /// Private data.
    pub private_data: [u8; PRIVATE_LEN],
}

impl Dreq {
    pub(super) const ATTRIBUTE: u16 = 0x15;

    pub(super) fn read(b: &Body) -> Self {
        Self {
            ids: CommIds::read(b),
            remote_qpn: field::u24(b, 8),
            private_data: field::array(b, 12),
        }
    }

    pub(super) fn write(&self, b: &mut Body) {
        self.ids.write(b);
        field::put_u24(b, 8, self.remote_qpn);
        field::put(b, 12, &self.private_data);
    }
}
