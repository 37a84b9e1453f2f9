use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cairn_base::netlink::{Netlink, attribute, attributes, find, u16_at, u32_at};
use cairn_base::scope::{index_of_name, name_of};

use crate::source::{Address, Neighbour, Route};

// Attributes (linux/if_addr.h, linux/rtnetlink.h, linux/neighbour.h).
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

type Body = Vec<u8>;

pub(super) fn request(kind: u16, flags: i32, body: &[u8]) -> io::Result<Vec<Body>> {
    request_of(libc::NETLINK_ROUTE, kind, flags, body)
}

pub(super) fn request_of(
    protocol: i32,
    kind: u16,
    flags: i32,
    body: &[u8],
) -> io::Result<Vec<Body>> {
    let messages = Netlink::open(protocol)?.request(kind, flags, body)?;
    Ok(messages.into_iter().map(|message| message.body).collect())
}

pub(super) fn addresses() -> io::Result<Vec<Address>> {
    // `struct ifaddrmsg`: family, prefix length, flags, scope, index.
    let messages = request(libc::RTM_GETADDR, libc::NLM_F_DUMP, &[0; 8])?;
    Ok(messages.iter().filter_map(|body| address(body)).collect())
}

fn address(body: &[u8]) -> Option<Address> {
    let attributes = attributes(body.get(8..)?);
    let value = |wanted: u16| find(&attributes, wanted).and_then(ip);
    Some(Address {
        netdev: name_of(u32_at(body, 4)?)?,
        // On a point-to-point link, IFA_ADDRESS is the peer's address.
        address: value(IFA_LOCAL).or_else(|| value(IFA_ADDRESS))?,
        prefix: body[1],
    })
}

pub(super) fn route(peer: IpAddr) -> io::Result<Route> {
    let (family, address) = octets(peer);
    // `struct rtmsg`: family, dst_len, src_len, tos, table, protocol, scope, type, flags.
    let mut body = vec![0; 12];
    body[0] = family;
    body[1] = (address.len() * 8) as u8;
    attribute(&mut body, RTA_DST, &address);
    let messages = request(libc::RTM_GETROUTE, 0, &body)?;
    let unreachable = || io::Error::from_raw_os_error(libc::ENETUNREACH);
    let answer = messages.first().ok_or_else(unreachable)?;
    let attributes = attributes(answer.get(12..).unwrap_or_default());
    let address = |wanted: u16| find(&attributes, wanted).and_then(ip);
    let netdev = find(&attributes, RTA_OIF).and_then(|value| u32_at(value, 0));
    let metrics = find(&attributes, RTA_METRICS).map(self::attributes);
    Ok(Route {
        netdev: netdev.and_then(name_of).ok_or_else(unreachable)?,
        source: address(RTA_PREFSRC),
        gateway: address(RTA_GATEWAY),
        mtu: metrics.and_then(|metrics| u32_at(find(&metrics, RTAX_MTU)?, 0)),
    })
}

pub(super) fn neighbour(netdev: &str, peer: IpAddr) -> io::Result<Neighbour> {
    let index = index_of_name(netdev)?;
    // `struct ndmsg`: family, padding, ifindex, state, flags, type.
    let mut body = [0; 12];
    body[0] = octets(peer).0;
    let messages = request(libc::RTM_GETNEIGH, libc::NLM_F_DUMP, &body)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_has_its_address_and_its_route() {
        let lo: IpAddr = "127.0.0.1".parse().unwrap();
        let all = addresses().unwrap();
        let own = all.iter().find(|address| address.address == lo).unwrap();
        assert_eq!((own.netdev.as_str(), own.prefix), ("lo", 8));
        assert_eq!(route(lo).unwrap().netdev, "lo");
        let missing = neighbour("lo", "192.0.2.1".parse().unwrap()).unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));
    }
}
