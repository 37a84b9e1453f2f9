//! Invariant CRC (IBTA 7.8.1, annexes A16.5.3 and A17.3.1).
//!
//! The ICRC is Ethernet's CRC-32 over eight bytes of ones (in place of InfiniBand's local route
//! header), the IP and UDP headers or the GRH, and the packet from the BTH on. Fields that routers
//! may change count as ones. The ICRC follows the packet, low byte first.
//!
//! The ICRC also covers the IPv4 identification and the don't-fragment flag, which a UDP socket
//! does not report. [`Checker`] computes them, because a CRC is linear: the contribution of a field,
//! divided by x^8 for each byte behind it, equals the field. If the identification is unexpected,
//! only 16 bits protect the packet.

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::grh::{Grh, NEXT_HEADER_BTH, gid_of};
use super::ipv4::{self, Ipv4, PROTOCOL_UDP};
use super::ipv6::{self, Ipv6};
use super::packet::{ICRC_LEN, MAX_LEN};
use super::udp::{ROCE_PORT, Udp};
use super::{Bth, Header};

const MASKED_MAX: usize = LRH_ONES + ipv6::LEN + Udp::LEN + Bth::LEN;
const LRH_ONES: usize = 8;
const BTH_CONGESTION: usize = 4;
const FROM_ID: usize = ipv4::LEN - 4 + Udp::LEN;
/// Upper 16 bits of `wound_back` in [`Checker::open`] for a packet without the don't-fragment flag.
const DF_WOUND_BACK: u32 = 0x40 << 16;

/// Addresses that the ICRC of a packet covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// RoCE v2.
    Udp {
        /// Source address.
        source: IpAddr,
        /// Destination address, of the same family.
        destination: IpAddr,
        /// UDP source port.
        source_port: u16,
    },
    /// RoCE v1.
    Grh {
        /// Source GID, as an IP address.
        source: IpAddr,
        /// Destination GID, as an IP address.
        destination: IpAddr,
    },
}

/// IPv4 fields that the ICRC covers but a UDP socket does not report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Identification.
    pub id: u16,
    /// DF: routers must not fragment the packet.
    pub dont_fragment: bool,
}

impl Identity {
    /// Returns the fields that Linux sets in segment `index` of a super-packet, if the socket is
    /// unconnected and has `IP_PMTUDISC_PROBE`.
    #[must_use]
    pub const fn of_segment(index: u16) -> Self {
        Self {
            id: index,
            dont_fragment: true,
        }
    }
}

/// Computes the ICRC of `transport`, the bytes from the BTH to the pad. Only RoCE v2 on IPv4 uses
/// `identity`.
///
/// # Panics
/// The BTH is incomplete, or the address families differ.
#[must_use]
pub fn icrc(route: &Route, identity: Identity, transport: &[u8]) -> u32 {
    let mut masked = [0xff; MASKED_MAX];
    let length = transport.len() + ICRC_LEN;
    let mut end = LRH_ONES + write_route(route, identity, length, &mut masked[LRH_ONES..]);
    masked[end..end + Bth::LEN].copy_from_slice(&transport[..Bth::LEN]);
    masked[end + BTH_CONGESTION] = 0xff;
    end += Bth::LEN;
    let mut crc = crc32fast::Hasher::new();
    crc.update(&masked[..end]);
    crc.update(&transport[Bth::LEN..]);
    crc.finalize()
}

/// Appends the ICRC to `packet[..length]`, and returns the new length in bytes.
pub fn seal(route: &Route, identity: Identity, packet: &mut [u8], length: usize) -> usize {
    let crc = icrc(route, identity, &packet[..length]);
    packet[length..length + ICRC_LEN].copy_from_slice(&crc.to_le_bytes());
    length + ICRC_LEN
}

/// Returns the bytes before the ICRC if the ICRC is correct.
#[must_use]
pub fn open<'a>(route: &Route, identity: Identity, packet: &'a [u8]) -> Option<&'a [u8]> {
    let (transport, found) = split(packet)?;
    (icrc(route, identity, transport) == found).then_some(transport)
}

fn split(packet: &[u8]) -> Option<(&[u8], u32)> {
    let (transport, found) = packet.split_last_chunk::<ICRC_LEN>()?;
    (transport.len() >= Bth::LEN).then_some((transport, u32::from_le_bytes(*found)))
}

fn write_route(route: &Route, identity: Identity, length: usize, out: &mut [u8]) -> usize {
    let ipv6 = |source, destination, next_header, payload_len: usize| Ipv6 {
        traffic_class: 0,
        flow_label: 0,
        payload_len: payload_len as u16,
        next_header,
        hop_limit: 0,
        source: gid_of(source),
        destination: gid_of(destination),
    };
    let (source, destination, source_port) = match *route {
        Route::Udp {
            source,
            destination,
            source_port,
        } => (source, destination, source_port),
        Route::Grh {
            source,
            destination,
        } => {
            let grh: Grh = ipv6(source, destination, NEXT_HEADER_BTH, length);
            grh.write_masked(&mut out[..ipv6::LEN]);
            return ipv6::LEN;
        }
    };
    let udp = Udp {
        source: source_port,
        destination: ROCE_PORT,
        length: (length + Udp::LEN) as u16,
        checksum: 0xffff,
    };
    let end = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let ip = Ipv4 {
                tos: 0,
                total_len: (ipv4::LEN + Udp::LEN + length) as u16,
                id: identity.id,
                dont_fragment: identity.dont_fragment,
                ttl: 0,
                protocol: PROTOCOL_UDP,
                source,
                destination,
            };
            ip.write_masked(&mut out[..ipv4::LEN]);
            ipv4::LEN
        }
        (IpAddr::V6(_), IpAddr::V6(_)) => {
            let ip = ipv6(source, destination, PROTOCOL_UDP, Udp::LEN + length);
            ip.write_masked(&mut out[..ipv6::LEN]);
            ipv6::LEN
        }
        _ => panic!("a packet's addresses are of one family"),
    };
    udp.write(&mut out[end..end + Udp::LEN]);
    end + Udp::LEN
}

/// Verifier for packets whose IPv4 identification is unknown.
#[derive(Debug, Default)]
pub struct Checker {
    /// Factor x^(-8n) for each packet length without ICRC, or 0 if not computed yet. n is the
    /// number of bytes from the identification to the ICRC.
    rewind: Vec<u32>,
}

impl Checker {
    /// Creates a verifier.
    #[must_use]
    pub fn new() -> Self {
        Self {
            rewind: vec![0; MAX_LEN + 1],
        }
    }

    /// Returns the bytes before the ICRC if the ICRC is correct with any identification. A correct
    /// `guess` is faster.
    #[must_use]
    pub fn open<'a>(&mut self, route: &Route, guess: u16, packet: &'a [u8]) -> Option<&'a [u8]> {
        let (transport, found) = split(packet).filter(|_| packet.len() <= MAX_LEN)?;
        let guess = Identity::of_segment(guess);
        let difference = icrc(route, guess, transport) ^ found;
        if difference == 0 {
            return Some(transport);
        }
        if !matches!(
            route,
            Route::Udp {
                source: IpAddr::V4(_),
                ..
            }
        ) {
            return None;
        }
        let factor = self.rewind_factor(transport.len());
        // The product with `factor` is the difference at the identification. In an intact packet,
        // only bits of the identification and the don't-fragment flag differ.
        let wound_back = multiply(difference, factor);
        matches!(wound_back & 0xffff_0000, 0 | DF_WOUND_BACK).then_some(transport)
    }

    fn rewind_factor(&mut self, transport_len: usize) -> u32 {
        let known = &mut self.rewind[transport_len];
        if *known == 0 {
            *known = inverse_power(FROM_ID + transport_len);
        }
        *known
    }
}

// Polynomials over GF(2), modulo the polynomial of CRC-32. The bits are reflected: bit 31 is x^0,
// and bit 0 is x^31. A zero byte after a message multiplies its CRC by x^8.

const POLYNOMIAL: u32 = 0xedb8_8320;
const ONE: u32 = 1 << 31;

const fn times_x(a: u32) -> u32 {
    a >> 1 ^ if a & 1 == 1 { POLYNOMIAL } else { 0 }
}

const fn over_x(a: u32) -> u32 {
    if a & ONE == 0 {
        a << 1
    } else {
        (a ^ POLYNOMIAL) << 1 | 1
    }
}

const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = ONE;
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = times_x(b);
        bit >>= 1;
    }
    product
}

/// Returns x^(-8 * `bytes`).
fn inverse_power(bytes: usize) -> u32 {
    let mut factor = ONE;
    for _ in 0..8 * bytes {
        factor = over_x(factor);
    }
    factor
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route() -> Route {
        Route::Udp {
            source: "10.9.2.2".parse().unwrap(),
            destination: "10.9.2.1".parse().unwrap(),
            source_port: 0xc5a1,
        }
    }

    fn packet(length: usize) -> Vec<u8> {
        (0..length).map(|i| (i * 7 + 3) as u8).collect()
    }

    #[test]
    fn powers_undo_each_other() {
        for a in [1, ONE, POLYNOMIAL, 0xdead_beef] {
            assert_eq!(over_x(times_x(a)), a);
            assert_eq!(times_x(over_x(a)), a);
            assert_eq!(multiply(a, ONE), a);
            let far = multiply(a, inverse_power(5));
            assert_eq!((0..40).fold(far, |a, _| times_x(a)), a);
        }
    }

    #[test]
    fn any_identification_is_found_out() {
        let mut checker = Checker::new();
        for length in [12, 16, 60, 1040, 4124] {
            for id in [0, 1, 0x1234, 0xffff] {
                for dont_fragment in [true, false] {
                    let mut bytes = packet(length + ICRC_LEN);
                    let identity = Identity { id, dont_fragment };
                    let end = seal(&route(), identity, &mut bytes, length);
                    assert_eq!(end, bytes.len());
                    for guess in [0, 1, id] {
                        let opened = checker.open(&route(), guess, &bytes);
                        assert_eq!(opened, Some(&bytes[..length]), "{length} {identity:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_found() {
        let mut checker = Checker::new();
        let length = 60;
        let mut bytes = packet(length + ICRC_LEN);
        seal(&route(), Identity::of_segment(0), &mut bytes, length);
        for bit in 0..bytes.len() * 8 {
            if bit / 8 == BTH_CONGESTION {
                continue; // Not covered: routers may change this byte.
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(checker.open(&route(), 0, &bytes), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(checker.open(&route(), 0, &bytes).is_some());
    }

    #[test]
    fn six_has_no_identification() {
        let route = Route::Udp {
            source: "fd00::1".parse().unwrap(),
            destination: "fd00::2".parse().unwrap(),
            source_port: 0xc5a1,
        };
        let mut bytes = packet(64);
        seal(&route, Identity::of_segment(7), &mut bytes, 60);
        assert!(Checker::new().open(&route, 0, &bytes).is_some());
        bytes[20] ^= 1;
        assert!(Checker::new().open(&route, 0, &bytes).is_none());
    }
}
