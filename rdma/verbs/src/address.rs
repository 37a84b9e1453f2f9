//! Conversion of socket addresses between Rust and C.
//!
//! Why `unsafe` here: C's `sockaddr` is a family of structures, distinguished by their first field.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::sys;

pub(crate) struct RawAddress(libc::sockaddr_storage);

impl RawAddress {
    pub(crate) fn new(address: SocketAddr) -> Self {
        // SAFETY: all-zero bytes are a valid sockaddr_storage of no family.
        let mut raw: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        match address {
            SocketAddr::V4(v4) => {
                let sin = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(v4.ip().octets()),
                    },
                    sin_zero: [0; 8],
                };
                // SAFETY: `sockaddr_storage` can hold the structure of any family.
                unsafe { (&raw mut raw).cast::<libc::sockaddr_in>().write(sin) };
            }
            SocketAddr::V6(v6) => {
                let sin6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: v6.ip().octets(),
                    },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: `sockaddr_storage` can hold the structure of any family.
                unsafe { (&raw mut raw).cast::<libc::sockaddr_in6>().write(sin6) };
            }
        }
        Self(raw)
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut sys::sockaddr {
        (&raw mut self.0).cast()
    }
}

/// Converts a socket address. An address of an unknown family becomes 0.0.0.0:0.
///
/// # Safety
/// `raw` points to a complete structure of its family.
pub(crate) unsafe fn from_raw(raw: *const sys::sockaddr) -> SocketAddr {
    // SAFETY: the caller guarantees a complete structure of its family.
    unsafe {
        match i32::from((*raw).sa_family) {
            libc::AF_INET => {
                let sin = &*raw.cast::<libc::sockaddr_in>();
                let ip = Ipv4Addr::from(sin.sin_addr.s_addr.to_ne_bytes());
                SocketAddr::new(IpAddr::V4(ip), u16::from_be(sin.sin_port))
            }
            libc::AF_INET6 => {
                let sin6 = &*raw.cast::<libc::sockaddr_in6>();
                SocketAddr::V6(SocketAddrV6::new(
                    Ipv6Addr::from(sin6.sin6_addr.s6_addr),
                    u16::from_be(sin6.sin6_port),
                    sin6.sin6_flowinfo,
                    sin6.sin6_scope_id,
                ))
            }
            _ => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_round_trip() {
        for text in ["192.0.2.7:4420", "[2001:db8::7]:4420", "[fe80::1%3]:9"] {
            let address: SocketAddr = text.parse().unwrap();
            let mut raw = RawAddress::new(address);
            // SAFETY: RawAddress contains a complete sockaddr_storage.
            assert_eq!(unsafe { from_raw(raw.as_mut_ptr()) }, address);
        }
    }
}
