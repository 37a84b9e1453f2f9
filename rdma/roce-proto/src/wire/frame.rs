//! Complete Ethernet frames of RoCE, as in packet sockets and captures.

use core::net::IpAddr;

use super::Header;
use super::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_ROCE, Ethernet};
use super::grh::{Grh, NEXT_HEADER_BTH, address_of};
use super::icrc::{Identity, Route};
use super::ipv4::{self, Ipv4, PROTOCOL_UDP};
use super::ipv6::{self, Ipv6};
use super::udp::{ROCE_PORT, Udp};

/// Headers between the Ethernet header and the BTH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// RoCE v2 on IPv4.
    V4(Ipv4, Udp),
    /// RoCE v2 on IPv6.
    V6(Ipv6, Udp),
    /// RoCE v1.
    V1(Grh),
}

/// Ethernet frame with a RoCE packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Ethernet header and optional tag.
    pub ethernet: Ethernet,
    /// IP and UDP headers, or the GRH.
    pub network: Network,
    /// Bytes from the BTH to the ICRC.
    pub packet: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Parses a frame; `None` if it is malformed or not RoCE.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (ethernet, rest) = Ethernet::parse(bytes)?;
        let (network, packet) = match ethernet.ethertype {
            ETHERTYPE_IPV4 => {
                let (ip, rest) = Ipv4::parse(rest)?;
                let (udp, packet) = parse_udp(ip.protocol, rest)?;
                (Network::V4(ip, udp), packet)
            }
            ETHERTYPE_IPV6 => {
                let (ip, rest) = Ipv6::parse(rest)?;
                let (udp, packet) = parse_udp(ip.next_header, rest)?;
                (Network::V6(ip, udp), packet)
            }
            ETHERTYPE_ROCE => {
                let (grh, packet) = Grh::parse(rest)?;
                if grh.next_header != NEXT_HEADER_BTH {
                    return None;
                }
                (Network::V1(grh), packet)
            }
            _ => return None,
        };
        Some(Self {
            ethernet,
            network,
            packet,
        })
    }

    /// Returns the length on the wire in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        let network = match self.network {
            Network::V4(..) => ipv4::LEN + Udp::LEN,
            Network::V6(..) => ipv6::LEN + Udp::LEN,
            Network::V1(_) => ipv6::LEN,
        };
        self.ethernet.len() + network + self.packet.len()
    }

    /// Always false.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes the frame to `out`, and returns its length in bytes.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let rest = self.ethernet.emit(out);
        let rest = match &self.network {
            Network::V4(ip, udp) => udp.emit(ip.emit(rest)),
            Network::V6(ip, udp) => udp.emit(ip.emit(rest)),
            Network::V1(grh) => grh.emit(rest),
        };
        rest[..self.packet.len()].copy_from_slice(self.packet);
        self.len()
    }

    /// Returns the addresses covered by the ICRC.
    #[must_use]
    pub fn route(&self) -> Route {
        match self.network {
            Network::V4(ip, udp) => Route::Udp {
                source: IpAddr::V4(ip.source),
                destination: IpAddr::V4(ip.destination),
                source_port: udp.source,
            },
            Network::V6(ip, udp) => Route::Udp {
                source: IpAddr::V6(ip.source),
                destination: IpAddr::V6(ip.destination),
                source_port: udp.source,
            },
            Network::V1(grh) => Route::Grh {
                source: address_of(grh.source),
                destination: address_of(grh.destination),
            },
        }
    }

    /// Returns the IPv4 fields covered by the ICRC.
    #[must_use]
    pub fn identity(&self) -> Identity {
        match self.network {
            Network::V4(ip, _) => Identity {
                id: ip.id,
                dont_fragment: ip.dont_fragment,
            },
            Network::V6(..) | Network::V1(_) => Identity::of_segment(0),
        }
    }
}

fn parse_udp(protocol: u8, bytes: &[u8]) -> Option<(Udp, &[u8])> {
    let (udp, _) = Udp::parse(bytes)?;
    let packet = bytes.get(Udp::LEN..usize::from(udp.length))?;
    (protocol == PROTOCOL_UDP && udp.destination == ROCE_PORT).then_some((udp, packet))
}
