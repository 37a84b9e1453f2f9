//! Ethernet header with an optional 802.1Q tag.

use super::{Header, field};

/// EtherType of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// EtherType of RoCE v1 (IBTA annex A16).
pub const ETHERTYPE_ROCE: u16 = 0x8915;
/// EtherType of an 802.1Q tag.
pub const ETHERTYPE_VLAN: u16 = 0x8100;

/// Content of an 802.1Q tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vlan {
    /// PCP: priority.
    pub pcp: u8,
    /// DEI: switches drop the frame first under congestion.
    pub dei: bool,
    /// VID: VLAN ID.
    pub vid: u16,
}

/// Ethernet header and optional tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ethernet {
    /// Destination MAC.
    pub destination: [u8; 6],
    /// Source MAC.
    pub source: [u8; 6],
    /// Tag, if present.
    pub vlan: Option<Vlan>,
    /// EtherType of the payload.
    pub ethertype: u16,
}

impl Ethernet {
    /// Parses header and tag, and returns the bytes behind them.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = bytes.split_at_checked(14)?;
        let mut this = Self {
            destination: field::array(head, 0),
            source: field::array(head, 6),
            vlan: None,
            ethertype: field::u16(head, 12),
        };
        if this.ethertype != ETHERTYPE_VLAN {
            return Some((this, rest));
        }
        let (tag, rest) = Tag::parse(rest)?;
        this.vlan = Some(tag.vlan);
        this.ethertype = tag.ethertype;
        Some((this, rest))
    }

    /// Returns the length on the wire in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        if self.vlan.is_some() { 18 } else { 14 }
    }

    /// Always false.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes header and tag to `out`, and returns the rest.
    pub fn emit<'a>(&self, out: &'a mut [u8]) -> &'a mut [u8] {
        let (head, rest) = out.split_at_mut(14);
        field::put(head, 0, &self.destination);
        field::put(head, 6, &self.source);
        let Some(vlan) = self.vlan else {
            field::put(head, 12, &self.ethertype.to_be_bytes());
            return rest;
        };
        field::put(head, 12, &ETHERTYPE_VLAN.to_be_bytes());
        let tag = Tag {
            vlan,
            ethertype: self.ethertype,
        };
        tag.emit(rest)
    }
}

/// Header fields behind the EtherType of an 802.1Q tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// Content of the tag.
    pub vlan: Vlan,
    /// EtherType of the payload.
    pub ethertype: u16,
}

impl Header for Tag {
    const LEN: usize = 4;

    fn read(b: &[u8]) -> Self {
        let tci = field::u16(b, 0);
        Self {
            vlan: Vlan {
                pcp: (tci >> 13) as u8,
                dei: tci & 0x1000 != 0,
                vid: tci & 0xfff,
            },
            ethertype: field::u16(b, 2),
        }
    }

    fn write(&self, out: &mut [u8]) {
        let tci = u16::from(self.vlan.pcp & 7) << 13
            | u16::from(self.vlan.dei) << 12
            | self.vlan.vid & 0xfff;
        field::put(out, 0, &tci.to_be_bytes());
        field::put(out, 2, &self.ethertype.to_be_bytes());
    }
}
