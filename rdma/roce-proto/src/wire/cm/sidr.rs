//! SIDR REQ and SIDR REP (IBTA 12.11).

use super::Body;
use crate::wire::field;

/// Length of a SIDR REQ's private data in bytes.
pub const REQ_PRIVATE_LEN: usize = 216;
/// Length of a SIDR REP's private data, in bytes.
pub const REP_PRIVATE_LEN: usize = 136;
/// Length of a SIDR REP's additional information, in bytes.
pub const INFO_LEN: usize = 72;
/// Status of a SIDR REP: no such service (IBTA 12.11.2.3).
pub const STATUS_NO_SERVICE: u8 = 1;

/// Request for the queue pair of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SidrReq {
    /// RequestID.
    pub request_id: u32,
    /// Partition Key.
    pub pkey: u16,
    /// ServiceID.
    pub service_id: u64,
    /// Private data.
    pub private_data: [u8; REQ_PRIVATE_LEN],
}

impl SidrReq {
    pub(super) const ATTRIBUTE: u16 = 0x17;

    pub(super) fn read(b: &Body) -> Self {
        Self {
            request_id: field::u32(b, 0),
            pkey: field::u16(b, 4),
            service_id: field::u64(b, 8),
            private_data: field::array(b, 16),
        }
    }

    pub(super) fn write(&self, b: &mut Body) {
        field::put(b, 0, &self.request_id.to_be_bytes());
        field::put(b, 4, &self.pkey.to_be_bytes());
        field::put(b, 8, &self.service_id.to_be_bytes());
        field::put(b, 16, &self.private_data);
    }
}

/// Response to a SIDR REQ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SidrRep {
    /// RequestID.
    pub request_id: u32,
    /// Status (IBTA 12.11.2.3).
    pub status: u8,
    /// Bytes used in `info`.
    pub info_len: u8,
    /// QPN of the service.
    pub qpn: u32,
    /// ServiceID.
    pub service_id: u64,
    /// Q_Key of the service.
    pub qkey: u32,
    /// Additional information.
    pub info: [u8; INFO_LEN],
    /// Private data.
    pub private_data: [u8; REP_PRIVATE_LEN],
}

impl SidrRep {
    pub(super) const ATTRIBUTE: u16 = 0x18;

    pub(super) fn read(b: &Body) -> Self {
        Self {
            request_id: field::u32(b, 0),
            status: b[4],
            info_len: b[5],
            qpn: field::u24(b, 8),
            service_id: field::u64(b, 12),
            qkey: field::u32(b, 20),
            info: field::array(b, 24),
            private_data: field::array(b, 96),
        }
    }

    pub(super) fn write(&self, b: &mut Body) {
        field::put(b, 0, &self.request_id.to_be_bytes());
        b[4] = self.status;
        b[5] = self.info_len;
        field::put_u24(b, 8, self.qpn);
        field::put(b, 12, &self.service_id.to_be_bytes());
        field::put(b, 20, &self.qkey.to_be_bytes());
        field::put(b, 24, &self.info);
        field::put(b, 96, &self.private_data);
    }
}
