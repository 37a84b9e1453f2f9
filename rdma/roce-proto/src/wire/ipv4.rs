//! IPv4 header of RoCE v2: no options, no fragments.

use core::net::Ipv4Addr;

use super::field;

/// Header length in bytes.
pub const LEN: usize = 20;
/// Protocol number of UDP, in IPv4 and IPv6.
pub const PROTOCOL_UDP: u8 = 17;

/// IPv4 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv4 {
    /// Type of service: DSCP and ECN.
    pub tos: u8,
    /// Length of header and payload in bytes.
    pub total_len: u16,
    /// Identification, for reassembly of fragments.
    pub id: u16,
    /// DF: routers must not fragment the packet.
    pub dont_fragment: bool,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
}

impl Ipv4 {
    /// Parses the header, and returns the rest of the packet, or `None` if the packet is truncated,
    /// not IPv4 or a fragment, or has a wrong checksum or options.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let b = bytes.get(..LEN)?;
        let fragment = field::u16(b, 6);
        if b[0] != 0x45 || checksum(b) != 0 || fragment & 0xbfff != 0 {
            return None;
        }
        let this = Self {
            tos: b[1],
            total_len: field::u16(b, 2),
            id: field::u16(b, 4),
            dont_fragment: fragment & 0x4000 != 0,
            ttl: b[8],
            protocol: b[9],
            source: Ipv4Addr::from(field::array::<4>(b, 12)),
            destination: Ipv4Addr::from(field::array::<4>(b, 16)),
        };
        let payload = bytes.get(LEN..usize::from(this.total_len))?;
        Some((this, payload))
    }

    /// Writes the header with its checksum to `out`, and returns the rest.
    pub fn emit<'a>(&self, out: &'a mut [u8]) -> &'a mut [u8] {
        let (b, rest) = out.split_at_mut(LEN);
        self.write(b);
        let sum = checksum(b);
        field::put(b, 10, &sum.to_be_bytes());
        rest
    }

    /// Writes the header with ones in the fields that routers may change (annex A17.3.1).
    pub(crate) fn write_masked(&self, out: &mut [u8]) {
        self.write(out);
        out[1] = 0xff;
        out[8] = 0xff;
        field::put(out, 10, &[0xff; 2]);
    }

    fn write(&self, b: &mut [u8]) {
        let fragment = u16::from(self.dont_fragment) << 14;
        b[0] = 0x45;
        b[1] = self.tos;
        field::put(b, 2, &self.total_len.to_be_bytes());
        field::put(b, 4, &self.id.to_be_bytes());
        field::put(b, 6, &fragment.to_be_bytes());
        b[8] = self.ttl;
        b[9] = self.protocol;
        field::put(b, 10, &[0; 2]);
        field::put(b, 12, &self.source.octets());
        field::put(b, 16, &self.destination.octets());
    }
}

fn checksum(bytes: &[u8]) -> u16 {
    let sum: u32 = bytes
        .chunks_exact(2)
        .map(|pair| u32::from(field::u16(pair, 0)))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}
