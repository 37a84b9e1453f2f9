//! REP (IBTA 12.6.8).

use super::{Body, CommIds};
use crate::wire::field;

/// Private data length in bytes.
pub const PRIVATE_LEN: usize = 196;

/// Acceptance of a connection request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rep {
    /// Communication IDs.
    pub ids: CommIds,
    /// Local Q_Key.
    pub local_qkey: u32,
    /// Local QPN.
    pub local_qpn: u32,
    /// First PSN expected by the sender.
    pub starting_psn: u32,
    /// Maximum outstanding READs and atomics that the sender answers.
    pub responder_resources: u8,
    /// Maximum outstanding READs and atomics that the sender issues.
    pub initiator_depth: u8,
    /// Target ACK Delay code (4.096 us * 2^code).
    pub target_ack_delay: u8,
    /// Failover Accepted: 0 is accepted, 1 not supported, 2 refused.
    pub failover: u8,
    /// True if the sender has end-to-end credits.
    pub flow_control: bool,
    /// RNR retries requested from the receiver.
    pub rnr_retry_count: u8,
    /// SRQ exists: the sender has a shared receive queue.
    pub srq: bool,
    /// GUID of the sender's channel adapter.
    pub local_ca_guid: u64,
    /// Private data.
    pub private_data: [u8; PRIVATE_LEN],
}

impl Rep {
    pub(super) const ATTRIBUTE: u16 = 0x13;

    pub(super) fn read(b: &Body) -> Self {
        Self {
            ids: CommIds::read(b),
            local_qkey: field::u32(b, 8),
            local_qpn: field::u24(b, 12),
            starting_psn: field::u24(b, 20),
            responder_resources: b[24],
            initiator_depth: b[25],
            target_ack_delay: b[26] >> 3,
            failover: b[26] >> 1 & 3,
            flow_control: b[26] & 1 != 0,
            rnr_retry_count: b[27] >> 5,
            srq: b[27] & 0x10 != 0,
            local_ca_guid: field::u64(b, 28),
            private_data: field::array(b, 36),
        }
    }

    pub(super) fn write(&self, b: &mut Body) {
        self.ids.write(b);
        field::put(b, 8, &self.local_qkey.to_be_bytes());
        field::put_u24(b, 12, self.local_qpn);
        field::put_u24(b, 20, self.starting_psn);
        b[24] = self.responder_resources;
        b[25] = self.initiator_depth;
        b[26] = self.target_ack_delay << 3 | (self.failover & 3) << 1 | u8::from(self.flow_control);
        b[27] = self.rnr_retry_count << 5 | u8::from(self.srq) << 4;
        field::put(b, 28, &self.local_ca_guid.to_be_bytes());
        field::put(b, 36, &self.private_data);
    }
}
