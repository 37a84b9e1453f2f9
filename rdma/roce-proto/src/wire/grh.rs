//! Global route header (GRH), which replaces IP in RoCE v1 and has the layout of IPv6 (IBTA 8.3).

use core::net::{IpAddr, Ipv6Addr};

pub use super::ipv6::{Ipv6 as Grh, LEN};

/// Next-header value that announces a BTH (IBTA 8.3.3).
pub const NEXT_HEADER_BTH: u8 = 0x1b;

/// Returns the GID of an IP address: an IPv6 or IPv4-mapped address (annex A17.4.1).
#[must_use]
pub fn gid_of(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// Returns the IP address of a GID.
#[must_use]
pub fn address_of(gid: Ipv6Addr) -> IpAddr {
    gid.to_ipv4_mapped().map_or(IpAddr::V6(gid), IpAddr::V4)
}
