//! Management datagrams (MAD) of the connection manager (IBTA 13.4.3).

use super::{Header, field};

/// Length of a MAD in bytes.
pub const MAD_LEN: usize = 256;
/// Length of a MAD without header, in bytes.
pub const MAD_BODY_LEN: usize = MAD_LEN - MadHeader::LEN;
/// Q_Key of QP1 (IBTA 3.5.3).
pub const GSI_QKEY: u32 = 0x8001_0000;
/// Queue pair number of QP1, the general services interface.
pub const GSI_QPN: u32 = 1;
/// Management class of communication management (IBTA 16.7).
pub const CLASS_CM: u8 = 0x07;

const BASE_VERSION: u8 = 1;
const CM_CLASS_VERSION: u8 = 2;
const METHOD_SEND: u8 = 3;

/// Common MAD header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MadHeader {
    /// BaseVersion.
    pub base_version: u8,
    /// MgmtClass.
    pub class: u8,
    /// ClassVersion.
    pub class_version: u8,
    /// Method; the highest bit is the response bit (R).
    pub method: u8,
    /// Status; 0 in connection messages.
    pub status: u16,
    /// TransactionID.
    pub transaction_id: u64,
    /// AttributeID.
    pub attribute: u16,
    /// AttributeModifier.
    pub modifier: u32,
}

impl MadHeader {
    /// Returns the header of a connection message.
    #[must_use]
    pub const fn cm(attribute: u16, transaction_id: u64) -> Self {
        Self {
            base_version: BASE_VERSION,
            class: CLASS_CM,
            class_version: CM_CLASS_VERSION,
            method: METHOD_SEND,
            status: 0,
            transaction_id,
            attribute,
            modifier: 0,
        }
    }

    /// True for a connection message of a supported version.
    #[must_use]
    pub const fn is_cm(&self) -> bool {
        self.base_version == BASE_VERSION
            && self.class == CLASS_CM
            && self.class_version == CM_CLASS_VERSION
            && self.method == METHOD_SEND
    }
}

impl Header for MadHeader {
    const LEN: usize = 24;

    fn read(b: &[u8]) -> Self {
        Self {
            base_version: b[0],
            class: b[1],
            class_version: b[2],
            method: b[3],
            status: field::u16(b, 4),
            transaction_id: field::u64(b, 8),
            attribute: field::u16(b, 16),
            modifier: field::u32(b, 20),
        }
    }

    fn write(&self, out: &mut [u8]) {
        out.fill(0);
        out[0] = self.base_version;
        out[1] = self.class;
        out[2] = self.class_version;
        out[3] = self.method;
        field::put(out, 4, &self.status.to_be_bytes());
        field::put(out, 8, &self.transaction_id.to_be_bytes());
        field::put(out, 16, &self.attribute.to_be_bytes());
        field::put(out, 20, &self.modifier.to_be_bytes());
    }
}
