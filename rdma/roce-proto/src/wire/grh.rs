//! The global route header: what RoCE v1 has in IP's place (IBTA 8.3).
//!
//! It has IPv6's layout; only its next header is InfiniBand's.

use core::net::{IpAddr, Ipv6Addr};

pub use super::ipv6::{Ipv6 as Grh, LEN};

/// The next header that means a BTH (IBTA 8.3.3).
pub const NEXT_HEADER_BTH: u8 = 0x1b;

/// The GID that an IP address has: itself, or itself mapped into IPv6
/// (annex A17.4.1).
#[must_use]
pub fn gid_of(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// The IP address that a GID stands for.
#[must_use]
pub fn address_of(gid: Ipv6Addr) -> IpAddr {
    gid.to_ipv4_mapped().map_or(IpAddr::V6(gid), IpAddr::V4)
}
