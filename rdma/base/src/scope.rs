//! IP address with the index of a network interface.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::{fmt, io};

use rustix::net::netdevice::{index_to_name, name_to_index};
use rustix::net::{AddressFamily, SocketType, socket};

/// IP address, and the interface of a link-local IPv6 address, as in `sockaddr_in6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScopedAddr {
    ip: IpAddr,
    scope_id: u32,
}

impl ScopedAddr {
    /// Creates an address. The scope is dropped unless `ip` is a link-local IPv6 address.
    #[must_use]
    pub fn new(ip: IpAddr, scope_id: u32) -> Self {
        let scope_id = if is_link_local(ip) { scope_id } else { 0 };
        Self { ip, scope_id }
    }

    /// Returns the address without its scope.
    #[must_use]
    pub fn ip(self) -> IpAddr {
        self.ip
    }

    /// Returns the index of the interface, or 0.
    #[must_use]
    pub fn scope_id(self) -> u32 {
        self.scope_id
    }

    /// Returns the socket address with this port.
    #[must_use]
    pub fn at(self, port: u16) -> SocketAddr {
        match self.ip {
            IpAddr::V4(ip) => (ip, port).into(),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, self.scope_id).into(),
        }
    }

    /// True for a link-local IPv6 address without its interface.
    #[must_use]
    pub fn lacks_scope(self) -> bool {
        is_link_local(self.ip) && self.scope_id == 0
    }
}

impl From<IpAddr> for ScopedAddr {
    fn from(ip: IpAddr) -> Self {
        Self { ip, scope_id: 0 }
    }
}

impl From<SocketAddr> for ScopedAddr {
    fn from(address: SocketAddr) -> Self {
        let scope_id = match address {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(v6) => v6.scope_id(),
        };
        Self::new(address.ip(), scope_id)
    }
}

impl fmt::Display for ScopedAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scope_id {
            0 => self.ip.fmt(f),
            index => match name_of(index) {
                Some(name) => write!(f, "{}%{name}", self.ip),
                None => write!(f, "{}%{index}", self.ip),
            },
        }
    }
}

pub(crate) fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

pub(crate) fn index_of(interface: &str) -> Option<u32> {
    let by_index = || {
        interface
            .parse()
            .ok()
            .filter(|&index| name_of(index).is_some())
    };
    index_of_name(interface).ok().or_else(by_index)
}

/// Returns the index of the named interface in this network namespace.
///
/// # Errors
/// The operating system's error, which is `ENODEV` if no interface has this name.
pub fn index_of_name(interface: &str) -> io::Result<u32> {
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    Ok(name_to_index(&any, interface)?)
}

/// Returns the name of the interface with this index in this network namespace.
#[must_use]
pub fn name_of(index: u32) -> Option<String> {
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    index_to_name(&any, index).ok()
}
