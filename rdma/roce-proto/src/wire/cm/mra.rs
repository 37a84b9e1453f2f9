//! MRA (IBTA 12.6.6).

use super::{Answered, Body, CommIds};
use crate::wire::field;

/// Private data length in bytes.
pub const PRIVATE_LEN: usize = 222;

/// Message of a peer that needs more time to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mra {
    /// Communication IDs.
    pub ids: CommIds,
    /// Message to be answered.
    pub answered: Answered,
    /// Service Timeout code (4.096 us * 2^code).
    pub service_timeout: u8,
    /// Private data.
    pub private_data: [u8; PRIVATE_LEN],
}

impl Mra {
    pub(super) const ATTRIBUTE: u16 = 0x11;

    pub(super) fn read(b: &Body) -> Self {
        Self {
            ids: CommIds::read(b),
            answered: Answered::from_code(b[8] >> 6),
            service_timeout: b[9] >> 3,
            private_data: field::array(b, 10),
        }
    }

    pub(super) fn write(&self, b: &mut Body) {
        self.ids.write(b);
        b[8] = (self.answered as u8) << 6;
        b[9] = self.service_timeout << 3;
        field::put(b, 10, &self.private_data);
    }
}
