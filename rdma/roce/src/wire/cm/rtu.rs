//! RTU: ready to use (IBTA 12.6.9).

use super::{Body, CommIds};
use crate::wire::field;

/// Bytes of private data.
pub const PRIVATE_LEN: usize = 224;

/// Ready to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rtu {
    /// Communication IDs.
    pub ids: CommIds,
    /// Private data.
    pub private_data: [u8; PRIVATE_LEN],
}

impl Rtu {
    pub(super) const ATTRIBUTE: u16 = 0x14;

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
