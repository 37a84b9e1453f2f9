//! LAP and APR (IBTA 12.8.1, 12.8.2). A LAP is parsed only to be refused: Ethernet has no alternate
//! paths.

use super::{Body, CommIds};
use crate::wire::field;

/// Length of a LAP's path description and private data, in bytes.
pub const PATH_LEN: usize = 224;
/// Length of an APR's additional information, in bytes.
pub const INFO_LEN: usize = 72;
/// Length of an APR's private data in bytes.
pub const APR_PRIVATE_LEN: usize = 148;
/// AP Status: alternate paths are not supported (IBTA 12.8.2.1).
pub const STATUS_UNSUPPORTED: u8 = 2;

/// Request to load an alternate path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lap {
    /// Communication IDs.
    pub ids: CommIds,
    /// Path description, not parsed.
    pub path: [u8; PATH_LEN],
}

impl Lap {
    pub(super) const ATTRIBUTE: u16 = 0x19;

    pub(super) fn read(b: &Body) -> Self {
        Self {
            ids: CommIds::read(b),
            path: field::array(b, 8),
        }
    }

    pub(super) fn write(&self, b: &mut Body) {
        self.ids.write(b);
        field::put(b, 8, &self.path);
    }
}

/// Response to a LAP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Apr {
    /// Communication IDs.
    pub ids: CommIds,
    /// Bytes used in `info`.
    pub info_len: u8,
    /// AP Status (IBTA 12.8.2.1).
    pub status: u8,
    /// Additional Information.
    pub info: [u8; INFO_LEN],
    /// Private data.
    pub private_data: [u8; APR_PRIVATE_LEN],
}

impl Apr {
    pub(super) const ATTRIBUTE: u16 = 0x1a;

    pub(super) fn read(b: &Body) -> Self {
        Self {
            ids: CommIds::read(b),
            info_len: b[8],
            status: b[9],
            info: field::array(b, 12),
            private_data: field::array(b, 84),
        }
    }

    pub(super) fn write(&self, b: &mut Body) {
        self.ids.write(b);
        b[8] = self.info_len;
        b[9] = self.status;
        field::put(b, 12, &self.info);
        field::put(b, 84, &self.private_data);
    }
}
