//! REJ (IBTA 12.6.7).

use super::{Answered, Body, CommIds};
use crate::wire::field;

/// Private data length in bytes.
pub const PRIVATE_LEN: usize = 148;
/// Length of the additional reject information in bytes.
pub const ARI_LEN: usize = 72;

/// Refusal of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rej {
    /// Communication IDs.
    pub ids: CommIds,
    /// Answered message.
    pub answered: Answered,
    /// Bytes used in `info`.
    pub info_len: u8,
    /// [`RejReason`], or another code of IBTA table 109.
    pub reason: u16,
    /// Additional Reject Information.
    pub info: [u8; ARI_LEN],
    /// Private data.
    pub private_data: [u8; PRIVATE_LEN],
}

/// Reject reasons sent or handled by this crate (IBTA 12.6.7.2, table 109).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum RejReason {
    /// No resources available.
    NoResources = 3,
    /// The peer did not answer in time.
    Timeout = 4,
    /// The receiver does not support a parameter of the request.
    UnsupportedRequest = 5,
    /// No listener has the service id.
    InvalidServiceId = 8,
    /// The transport type is not a reliable connection.
    InvalidTransportType = 9,
    /// The request's queue pair is connected, or was recently.
    StaleConnection = 10,
    /// The path does not support the requested MTU. The additional information contains an
    /// acceptable MTU code.
    InvalidPathMtu = 26,
    /// The consumer refused the request.
    Consumer = 28,
}

impl Rej {
    pub(super) const ATTRIBUTE: u16 = 0x12;

    pub(super) fn read(b: &Body) -> Self {
        Self {
            ids: CommIds::read(b),
            answered: Answered::from_code(b[8] >> 6),
            info_len: b[9] >> 1,
            reason: field::u16(b, 10),
            info: field::array(b, 12),
            private_data: field::array(b, 84),
        }
    }

    pub(super) fn write(&self, b: &mut Body) {
        self.ids.write(b);
        b[8] = (self.answered as u8) << 6;
        b[9] = self.info_len << 1;
        field::put(b, 10, &self.reason.to_be_bytes());
        field::put(b, 12, &self.info);
        field::put(b, 84, &self.private_data);
    }
}
