//! IPv6 header of RoCE v2, without extension headers.

use core::net::Ipv6Addr;

use super::field;

/// Header length in bytes.
pub const LEN: usize = 40;

/// IPv6 header. With [`NEXT_HEADER_BTH`](super::grh::NEXT_HEADER_BTH), it is the GRH of RoCE v1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv6 {
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label.
    pub flow_label: u32,
    /// Payload length in bytes.
    pub payload_len: u16,
    /// Type of the next header.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
}

impl Ipv6 {
    /// Parses the header, and returns the rest of the packet, or `None` if the version is not 6 or
    /// the packet is truncated.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (b, rest) = bytes.split_at_checked(LEN)?;
        let first = field::u32(b, 0);
        if first >> 28 != 6 {
            return None;
        }
        let this = Self {
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0xf_ffff,
            payload_len: field::u16(b, 4),
            next_header: b[6],
            hop_limit: b[7],
            source: Ipv6Addr::from(field::array::<16>(b, 8)),
            destination: Ipv6Addr::from(field::array::<16>(b, 24)),
        };
        let payload = rest.get(..usize::from(this.payload_len))?;
        Some((this, payload))
    }

    /// Writes the header to `out`, and returns the rest.
    pub fn emit<'a>(&self, out: &'a mut [u8]) -> &'a mut [u8] {
        let (b, rest) = out.split_at_mut(LEN);
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        field::put(b, 0, &first.to_be_bytes());
        field::put(b, 4, &self.payload_len.to_be_bytes());
        b[6] = self.next_header;
        b[7] = self.hop_limit;
        field::put(b, 8, &self.source.octets());
        field::put(b, 24, &self.destination.octets());
        rest
    }

    /// Writes the header with ones in the fields that routers may change (IBTA 7.8.1, annex
    /// A17.3.1).
    pub(crate) fn write_masked(&self, out: &mut [u8]) {
        let masked = Self {
            traffic_class: 0xff,
            flow_label: 0xf_ffff,
            hop_limit: 0xff,
            ..*self
        };
        masked.emit(out);
    }
}
