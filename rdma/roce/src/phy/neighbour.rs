//! MAC addresses of peers, for RoCE v1.
//!
//! The kernel's neighbour table has the MAC addresses. Frames are lost while the kernel resolves an
//! unknown address.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};

use cairn_base::ScopedAddr;
use cairn_base::netlink::{Message, Netlink, attribute, attributes, find, u16_at};

use super::interface::Interface;

pub(crate) type Mac = [u8; 6];

const CACHED_FOR: Duration = Duration::from_secs(5);
const MAX_KNOWN: usize = 4096;
/// Port of the discard protocol (RFC 863). A datagram to it makes the kernel resolve the peer's MAC
/// address.
const DISCARD_PORT: u16 = 9;

const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_VALID: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;
const NDMSG_LEN: usize = 12;

#[derive(Debug)]
pub(crate) struct Neighbours {
    interface: Interface,
    netlink: Netlink,
    known: HashMap<IpAddr, (Mac, Instant)>,
}

impl Neighbours {
    pub(crate) fn new(interface: Interface) -> io::Result<Self> {
        Ok(Self {
            interface,
            netlink: Netlink::open(libc::NETLINK_ROUTE)?,
            known: HashMap::new(),
        })
    }

    #[must_use]
    pub(crate) fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Returns the MAC address of a peer. If it is unknown, returns `None`, and the kernel resolves
    /// it for a later call.
    pub(crate) fn mac_of(&mut self, address: IpAddr, now: Instant) -> Option<Mac> {
        if self.interface.is_loopback {
            return Some([0; 6]);
        }
        if let Some(mac) = mac_of_link_local(address) {
            return Some(mac);
        }
        let before = self.known.get(&address).copied();
        if let Some((mac, asked_at)) = before
            && now.saturating_duration_since(asked_at) < CACHED_FOR
        {
            return Some(mac);
        }
        let found = self.query_kernel(address);
        if found.is_none() {
            // Frames of packet sockets do not refresh the kernel's entry, so a datagram makes the
            // kernel verify it.
            solicit(ScopedAddr::new(address, self.interface.index));
        }
        let mac = found.or(before.map(|(mac, _)| mac))?;
        if self.known.len() == MAX_KNOWN && before.is_none() {
            self.known.clear();
        }
        self.known.insert(address, (mac, now));
        Some(mac)
    }

    fn query_kernel(&mut self, address: IpAddr) -> Option<Mac> {
        let body = request(address, self.interface.index);
        let answer = self.netlink.request(libc::RTM_GETNEIGH, 0, &body).ok()?;
        parse_answer(answer.first()?)
    }
}

pub(crate) fn solicit(address: ScopedAddr) {
    let any: IpAddr = match address.ip() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    if let Ok(socket) = UdpSocket::bind((any, 0)) {
        let _ = socket.send_to(&[], address.at(DISCARD_PORT));
    }
}

/// Returns the MAC address in a link-local GID (annex A16.3.1: EUI-64 of RFC 4291, appendix A).
fn mac_of_link_local(address: IpAddr) -> Option<Mac> {
    let IpAddr::V6(v6) = address else { return None };
    let [.., a, b, c, 0xff, 0xfe, d, e, f] = v6.octets() else {
        return None;
    };
    v6.is_unicast_link_local().then_some([a ^ 2, b, c, d, e, f])
}

fn request(address: IpAddr, index: u32) -> Vec<u8> {
    let (family, bytes) = match address {
        IpAddr::V4(v4) => (libc::AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6, v6.octets().to_vec()),
    };
    let mut body = Vec::with_capacity(NDMSG_LEN + 4 + bytes.len());
    body.extend([family as u8, 0, 0, 0]);
    body.extend(index.to_ne_bytes());
    body.extend([0; 4]);
    attribute(&mut body, NDA_DST, &bytes);
    body
}

fn parse_answer(answer: &Message) -> Option<Mac> {
    let state = u16_at(&answer.body, 8)?;
    if answer.kind != libc::RTM_NEWNEIGH || state & NUD_VALID == 0 {
        return None;
    }
    let attributes = attributes(answer.body.get(NDMSG_LEN..)?);
    find(&attributes, NDA_LLADDR)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_local_gid_contains_its_mac() {
        let of = |text: &str| mac_of_link_local(text.parse().unwrap());
        let mac = Some([0x52, 0x54, 0x00, 0x12, 0x34, 0x56]);
        assert_eq!(of("fe80::5054:ff:fe12:3456"), mac);
        assert_eq!(of("fe80::1"), None);
        assert_eq!(of("fd00::5054:ff:fe12:3456"), None);
        assert_eq!(of("10.0.0.1"), None);
    }

    #[test]
    fn an_answer_is_read_and_nonsense_is_not() {
        let mut answer = Message {
            kind: libc::RTM_NEWNEIGH,
            body: request("10.0.0.9".parse().unwrap(), 3),
        };
        answer.body[8] = 0x04;
        attribute(&mut answer.body, NDA_LLADDR, &[2, 0, 0, 0, 0, 9]);
        assert_eq!(parse_answer(&answer), Some([2, 0, 0, 0, 0, 9]));
        let whole = answer.body.clone();
        for length in 0..whole.len() - 2 {
            answer.body = whole[..length].to_vec();
            assert_eq!(parse_answer(&answer), None, "{length} bytes");
        }
        answer.body = whole;
        answer.body[8] = 0x20; // NUD_FAILED
        assert_eq!(parse_answer(&answer), None);
        answer.body[8] = 0x04;
        answer.body[NDMSG_LEN] = 0; // an attribute of length 0
        assert_eq!(parse_answer(&answer), None);
    }

    #[test]
    fn on_loopback_no_address_has_a_mac() {
        let interface = Interface::of(IpAddr::from(Ipv4Addr::LOCALHOST).into()).unwrap();
        let mut neighbours = Neighbours::new(interface).unwrap();
        let mac = neighbours.mac_of(Ipv4Addr::new(127, 1, 2, 3).into(), Instant::now());
        assert_eq!(mac, Some([0; 6]));
    }
}
