//! RTU and DREP (IBTA 12.6.9, 12.6.11).

use super::{Body, CommIds};
use crate::wire::field;

/// Private data length in bytes.
pub const PRIVATE_LEN: usize = 224;

/// Message with only communication ids and private data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bare<const ATTRIBUTE: u16> {
    /// Communication IDs.
    pub ids: CommIds,
    /// Private data.
    pub private_data: [u8; PRIVATE_LEN],
}

/// Ready to use: the sender of the REQ can use the connection.
pub type Rtu = Bare<0x14>;
/// Reply to a DREQ.
pub type Drep = Bare<0x16>;

impl<const ATTRIBUTE: u16> Bare<ATTRIBUTE> {
    pub(super) const ATTRIBUTE: u16 = ATTRIBUTE;

    pub(super) fn read(b: &Body) -> Self {
        Self {
            ids: CommIds::read(b),
            private_data: field::array(b, 8),
        }
    }

    pub(super) fn write(&self, b: &mut Body) {
        self.ids.write(b);
        field::put(b, 8, &self.private_data);
    }
}
