//! Netlink (RFC 3549), and rtnetlink's addresses, routes and neighbours.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::sys;
use crate::source::{Address, Neighbour, Route};

/// Bytes of a message's header (struct nlmsghdr).
const HEADER: usize = 16;
/// The kernel fills answers up to 32 KiB.
const ANSWER_BYTES: usize = 32 * 1024;

// Attributes, from linux/if_addr.h, linux/rtnetlink.h and linux/neighbour.h.
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTAX_MTU: u16 = 2;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;

/// States of a neighbour, from linux/neighbour.h.
const NEIGHBOUR_STATES: [(u16, &str); 8] = [
    (0x01, "INCOMPLETE"),
    (0x02, "REACHABLE"),
    (0x04, "STALE"),
    (0x08, "DELAY"),
    (0x10, "PROBE"),
    (0x20, "FAILED"),
    (0x40, "NOARP"),
    (0x80, "PERMANENT"),
];

/// An answer: its body, the header left out.
type Message = Vec<u8>;

/// Asks the kernel about routing, and returns all of what it says.
pub(super) fn talk(kind: u16, flags: i32, body: &[u8]) -> io::Result<Vec<Message>> {
    talk_of(libc::NETLINK_ROUTE, kind, flags, body)
}

/// Asks the kernel by a netlink protocol, and returns all of what it says.
pub(super) fn talk_of(
    protocol: i32,
    kind: u16,
    flags: i32,
    body: &[u8],
) -> io::Result<Vec<Message>> {
    let mut socket = sys::netlink(protocol)?;
    let length = HEADER + body.len();
    let mut request = Vec::with_capacity(length);
    request.extend((length as u32).to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
    request.extend([0; 8]);
    request.extend(body);
    socket.write_all(&request)?;

    let mut messages = Vec::new();
    let mut buffer = vec![0; ANSWER_BYTES];
    loop {
        let filled = socket.read(&mut buffer)?;
        if filled == 0 || !collect(&buffer[..filled], &mut messages)? {
            return Ok(messages);
        }
    }
}

/// Takes the messages out of one answer. False: there is nothing more to come.
pub(super) fn collect(mut answer: &[u8], messages: &mut Vec<Message>) -> io::Result<bool> {
    let mut goes_on = false;
    while let Some(length) = u32_at(answer, 0).map(|length| length as usize) {
        if length < HEADER || length > answer.len() {
            return Err(impossible_length());
        }
        let kind = i32::from(u16_at(answer, 4).unwrap_or_default());
        let flags = i32::from(u16_at(answer, 6).unwrap_or_default());
        let body = &answer[HEADER..length];
        match kind {
            // Both begin with an error code, which is 0 or negative.
            libc::NLMSG_DONE | libc::NLMSG_ERROR => {
                return match u32_at(body, 0).ok_or_else(impossible_length)? as i32 {
                    code @ ..0 => Err(io::Error::from_raw_os_error(code.saturating_neg())),
                    _ => Ok(false),
                };
            }
            _ => messages.push(body.to_owned()),
        }
        goes_on = flags & libc::NLM_F_MULTI != 0;
        answer = &answer[length.next_multiple_of(4).min(answer.len())..];
    }
    Ok(goes_on)
}

fn impossible_length() -> io::Error {
    io::Error::other("a netlink message of an impossible length")
}

/// The attributes of a message, which begin after its fixed part.
pub(super) fn attributes(mut rest: &[u8]) -> Vec<(u16, &[u8])> {
    let mut found = Vec::new();
    while let (Some(length), Some(kind)) = (u16_at(rest, 0), u16_at(rest, 2)) {
        let length = usize::from(length);
        if length < 4 || length > rest.len() {
            break;
        }
        // The two top bits say how the value is encoded (NLA_TYPE_MASK).
        found.push((kind & 0x3fff, &rest[4..length]));
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
    }
    found
}

/// Appends an attribute.
pub(super) fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend((value.len() as u16 + 4).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// `ip address`.
pub(super) fn addresses() -> io::Result<Vec<Address>> {
    // struct ifaddrmsg: family, prefix length, flags, scope, index.
    let messages = talk(libc::RTM_GETADDR, libc::NLM_F_DUMP, &[0; 8])?;
    Ok(messages.iter().filter_map(|body| address(body)).collect())
}

fn address(body: &[u8]) -> Option<Address> {
    let attributes = attributes(body.get(8..)?);
    let value = |wanted: u16| find(&attributes, wanted).and_then(ip);
    Some(Address {
        netdev: sys::name_of(u32_at(body, 4)?)?,
        // On a point-to-point link IFA_ADDRESS is the other end's.
        address: value(IFA_LOCAL).or_else(|| value(IFA_ADDRESS))?,
        prefix: body[1],
    })
}

/// `ip route get`.
pub(super) fn route(peer: IpAddr) -> io::Result<Route> {
    let (family, address) = octets(peer);
    // struct rtmsg: family, dst_len, src_len, tos, table, protocol, scope, type, flags.
    let mut body = vec![0; 12];
    body[0] = family;
    body[1] = (address.len() * 8) as u8;
    attribute(&mut body, RTA_DST, &address);
    let messages = talk(libc::RTM_GETROUTE, 0, &body)?;
    let unreachable = || io::Error::from_raw_os_error(libc::ENETUNREACH);
    let answer = messages.first().ok_or_else(unreachable)?;
    let attributes = attributes(answer.get(12..).unwrap_or_default());
    let address = |wanted: u16| find(&attributes, wanted).and_then(ip);
    let netdev = find(&attributes, RTA_OIF).and_then(|value| u32_at(value, 0));
    let metrics = find(&attributes, RTA_METRICS).map(self::attributes);
    Ok(Route {
        netdev: netdev.and_then(sys::name_of).ok_or_else(unreachable)?,
        source: address(RTA_PREFSRC),
        gateway: address(RTA_GATEWAY),
        mtu: metrics.and_then(|metrics| u32_at(find(&metrics, RTAX_MTU)?, 0)),
    })
}

/// `ip neighbour show PEER dev NETDEV`.
pub(super) fn neighbour(netdev: &str, peer: IpAddr) -> io::Result<Neighbour> {
    let index = sys::index_of(netdev)?;
    // struct ndmsg: family, padding, ifindex, state, flags, type.
    let mut body = [0; 12];
    body[0] = octets(peer).0;
    let messages = talk(libc::RTM_GETNEIGH, libc::NLM_F_DUMP, &body)?;
    let found = messages.iter().find_map(|body| {
        let attributes = attributes(body.get(12..)?);
        let is_peer = find(&attributes, NDA_DST).and_then(ip) == Some(peer);
        (u32_at(body, 4)? == index && is_peer).then(|| Neighbour {
            state: state_name(u16_at(body, 8).unwrap_or_default()).to_owned(),
            mac: find(&attributes, NDA_LLADDR).map(mac),
        })
    });
    found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
}

fn state_name(state: u16) -> &'static str {
    let known = NEIGHBOUR_STATES.iter().find(|(bit, _)| state & bit != 0);
    known.map_or("NONE", |(_, name)| name)
}

fn mac(octets: &[u8]) -> String {
    let octets: Vec<String> = octets.iter().map(|octet| format!("{octet:02x}")).collect();
    octets.join(":")
}

pub(super) fn find<'a>(attributes: &[(u16, &'a [u8])], wanted: u16) -> Option<&'a [u8]> {
    let found = attributes.iter().find(|(kind, _)| *kind == wanted)?;
    Some(found.1)
}

fn octets(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(v4) => (libc::AF_INET as u8, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6 as u8, v6.octets().to_vec()),
    }
}

fn ip(octets: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(octets) {
        return Some(Ipv4Addr::from(v4).into());
    }
    let v6 = <[u8; 16]>::try_from(octets).ok()?;
    Some(Ipv6Addr::from(v6).into())
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_they_are_written() {
        let mut body = Vec::new();
        attribute(&mut body, 1, b"abc");
        attribute(&mut body, 0x8002, b"defgh");
        assert_eq!(attributes(&body), [(1, &b"abc"[..]), (2, &b"defgh"[..])]);
    }

    #[test]
    fn broken_lengths_end_the_reading() {
        assert!(attributes(&[0, 0, 1, 0]).is_empty());
        assert!(attributes(&[255, 255, 1, 0]).is_empty());
        assert!(collect(&[5, 0, 0, 0, 0, 0, 0, 0], &mut Vec::new()).is_err());
    }

    #[test]
    fn the_end_of_an_answer_may_be_an_error() {
        for kind in [libc::NLMSG_DONE, libc::NLMSG_ERROR] {
            let end_with = |body: &[u8]| {
                let mut answer = vec![0; HEADER];
                answer[0] = (HEADER + body.len()) as u8;
                answer[4] = kind as u8;
                answer.extend(body);
                collect(&answer, &mut Vec::new())
            };
            let code = |code: i32| end_with(&code.to_ne_bytes()).unwrap_err().raw_os_error();
            assert!(!end_with(&0_i32.to_ne_bytes()).unwrap());
            assert_eq!(code(-libc::EINVAL), Some(libc::EINVAL));
            assert_eq!(code(i32::MIN), Some(i32::MAX));
            assert!(end_with(&[]).is_err());
        }
    }

    #[test]
    fn the_loopback_device_has_its_address_and_its_route() {
        let lo: IpAddr = "127.0.0.1".parse().unwrap();
        let all = addresses().unwrap();
        let own = all.iter().find(|address| address.address == lo).unwrap();
        assert_eq!((own.netdev.as_str(), own.prefix), ("lo", 8));
        assert_eq!(route(lo).unwrap().netdev, "lo");
        let nobody = neighbour("lo", "192.0.2.1".parse().unwrap()).unwrap_err();
        assert_eq!(nobody.raw_os_error(), Some(libc::ENOENT));
    }
}
