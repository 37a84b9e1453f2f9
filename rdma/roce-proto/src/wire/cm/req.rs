//! REQ (IBTA 12.6.5).

use core::net::Ipv6Addr;

use super::Body;
use crate::wire::field;

/// Private data length in bytes.
pub const PRIVATE_LEN: usize = 92;

/// Connection request, without the alternate path, which RoCE does not use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Req {
    /// Local Communication ID.
    pub local_comm_id: u32,
    /// ServiceID.
    pub service_id: u64,
    /// Local CA GUID.
    pub local_ca_guid: u64,
    /// Local Q_Key.
    pub local_qkey: u32,
    /// Local QPN.
    pub local_qpn: u32,
    /// Maximum outstanding READs and atomics that the sender answers.
    pub responder_resources: u8,
    /// Maximum outstanding READs and atomics that the sender issues.
    pub initiator_depth: u8,
    /// Remote CM Response Timeout code (4.096 us * 2^code).
    pub remote_response_timeout: u8,
    /// Transport Service Type: 0 is a reliable connection.
    pub transport_type: u8,
    /// True if the sender has end-to-end credits.
    pub flow_control: bool,
    /// First PSN expected by the sender.
    pub starting_psn: u32,
    /// Local CM Response Timeout code.
    pub local_response_timeout: u8,
    /// Transport retries requested from the receiver.
    pub retry_count: u8,
    /// Partition Key.
    pub pkey: u16,
    /// Path Packet Payload MTU code.
    pub path_mtu: u8,
    /// RNR retries requested from the receiver.
    pub rnr_retry_count: u8,
    /// Maximum repetitions of a connection message.
    pub max_cm_retries: u8,
    /// SRQ exists: the sender has a shared receive queue.
    pub srq: bool,
    /// Primary path.
    pub primary: Path,
    /// Private data.
    pub private_data: [u8; PRIVATE_LEN],
}

/// Primary path of a REQ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// Local and Remote Port LID: 0xffff on Ethernet.
    pub lids: [u16; 2],
    /// Local Port GID.
    pub local_gid: Ipv6Addr,
    /// Remote Port GID.
    pub remote_gid: Ipv6Addr,
    /// Flow Label.
    pub flow_label: u32,
    /// Packet Rate code.
    pub rate: u8,
    /// Traffic Class.
    pub traffic_class: u8,
    /// Hop Limit.
    pub hop_limit: u8,
    /// Service level.
    pub sl: u8,
    /// True if both ports share a subnet.
    pub subnet_local: bool,
    /// Local ACK Timeout code.
    pub local_ack_timeout: u8,
}

impl Req {
    pub(super) const ATTRIBUTE: u16 = 0x10;

    pub(super) fn read(b: &Body) -> Self {
        Self {
            local_comm_id: field::u32(b, 0),
            service_id: field::u64(b, 8),
            local_ca_guid: field::u64(b, 16),
            local_qkey: field::u32(b, 28),
            local_qpn: field::u24(b, 32),
            responder_resources: b[35],
            initiator_depth: b[39],
            remote_response_timeout: b[43] >> 3,
            transport_type: b[43] >> 1 & 3,
            flow_control: b[43] & 1 != 0,
            starting_psn: field::u24(b, 44),
            local_response_timeout: b[47] >> 3,
            retry_count: b[47] & 7,
            pkey: field::u16(b, 48),
            path_mtu: b[50] >> 4,
            rnr_retry_count: b[50] & 7,
            max_cm_retries: b[51] >> 4,
            srq: b[51] & 8 != 0,
            primary: Path::read(b),
            private_data: field::array(b, 140),
        }
    }

    pub(super) fn write(&self, b: &mut Body) {
        field::put(b, 0, &self.local_comm_id.to_be_bytes());
        field::put(b, 8, &self.service_id.to_be_bytes());
        field::put(b, 16, &self.local_ca_guid.to_be_bytes());
        field::put(b, 28, &self.local_qkey.to_be_bytes());
        field::put_u24(b, 32, self.local_qpn);
        b[35] = self.responder_resources;
        b[39] = self.initiator_depth;
        b[43] = self.remote_response_timeout << 3
            | (self.transport_type & 3) << 1
            | u8::from(self.flow_control);
        field::put_u24(b, 44, self.starting_psn);
        b[47] = self.local_response_timeout << 3 | self.retry_count & 7;
        field::put(b, 48, &self.pkey.to_be_bytes());
        b[50] = self.path_mtu << 4 | self.rnr_retry_count & 7;
        b[51] = self.max_cm_retries << 4 | u8::from(self.srq) << 3;
        self.primary.write(b);
        field::put(b, 140, &self.private_data);
    }
}

impl Path {
    fn read(b: &Body) -> Self {
        Self {
            lids: [field::u16(b, 52), field::u16(b, 54)],
            local_gid: Ipv6Addr::from(field::array::<16>(b, 56)),
            remote_gid: Ipv6Addr::from(field::array::<16>(b, 72)),
            flow_label: field::u32(b, 88) >> 12,
            rate: b[91] & 0x3f,
            traffic_class: b[92],
            hop_limit: b[93],
            sl: b[94] >> 4,
            subnet_local: b[94] & 8 != 0,
            local_ack_timeout: b[95] >> 3,
        }
    }

    fn write(&self, b: &mut Body) {
        field::put(b, 52, &self.lids[0].to_be_bytes());
        field::put(b, 54, &self.lids[1].to_be_bytes());
        field::put(b, 56, &self.local_gid.octets());
        field::put(b, 72, &self.remote_gid.octets());
        let flow = self.flow_label << 12 | u32::from(self.rate & 0x3f);
        field::put(b, 88, &flow.to_be_bytes());
        b[92] = self.traffic_class;
        b[93] = self.hop_limit;
        b[94] = self.sl << 4 | u8::from(self.subnet_local) << 3;
        b[95] = self.local_ack_timeout << 3;
    }
}
