//! Text of transport addresses. A link-local address includes its interface's name, which is kept
//! as written because the interface may not exist yet.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::scope::{ScopedAddr, index_of, is_link_local, name_of};

/// Transport address (TRADDR): `192.0.2.1`, `2001:db8::1` or `fe80::1%eth0`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Traddr {
    ip: IpAddr,
    scope: Option<Scope>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Scope([u8; SCOPE_MAX]);

const SCOPE_MAX: usize = libc::IFNAMSIZ - 1;

/// Transport address and service (TRADDR and TRSVCID): `192.0.2.1:4420` or `[fe80::1%eth0]:4420`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Trid {
    /// IP address (TRADDR).
    pub address: Traddr,
    /// Port number (TRSVCID).
    pub port: u16,
}

/// Error in reading or using an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraddrError {
    /// Text whose IP address or port is invalid.
    #[error("it is not an IP address")]
    NotAnAddress,
    /// Scope on an address that is not link-local.
    #[error("{0} has no scope, only link-local addresses have one: leave out what follows it")]
    NotLinkLocal(IpAddr),
    /// Text after `%` that is not an interface name.
    #[error("{0:?} is not the name of a network interface")]
    NotAnInterface(String),
    /// The machine has no interface of that name or index.
    #[error(
        "there is no network interface \"{0}\" now; `ip -brief link` shows those of this machine"
    )]
    NoInterface(String),
    /// A link-local address lacks its interface.
    #[error(
        "{0} is link-local and may belong to any interface: write the interface of this machine, \
         too, such as {0}%eth0; `ip -6 -brief address` shows interfaces and addresses"
    )]
    NoScope(IpAddr),
    /// Different scopes at the two ends of a connection.
    #[error(
        "{0} and {1} are at different interfaces, and link-local addresses reach only their own"
    )]
    DifferentLinks(ScopedAddr, ScopedAddr),
}

impl Traddr {
    /// Returns the address without its scope.
    #[must_use]
    pub fn ip(self) -> IpAddr {
        self.ip
    }

    /// True for a link-local address without its interface.
    #[must_use]
    pub fn lacks_scope(self) -> bool {
        is_link_local(self.ip) && self.scope.is_none()
    }

    /// Converts the interface's name to its index in this network namespace.
    pub fn resolve(self) -> Result<ScopedAddr, TraddrError> {
        let Some(scope) = self.scope else {
            return Ok(self.ip.into());
        };
        let index = index_of(scope.as_str());
        let index = index.ok_or_else(|| TraddrError::NoInterface(scope.as_str().to_owned()))?;
        Ok(ScopedAddr::new(self.ip, index))
    }
}

impl Scope {
    fn parse(text: &str) -> Option<Self> {
        let is_name = |byte: u8| byte.is_ascii_graphic() && !b"%/:[]".contains(&byte);
        let mut bytes = [0; SCOPE_MAX];
        let own = bytes.get_mut(..text.len())?;
        own.copy_from_slice(text.as_bytes());
        (!text.is_empty() && text.bytes().all(is_name)).then_some(Self(bytes))
    }

    fn as_str(&self) -> &str {
        let length = self.0.iter().take_while(|byte| **byte != 0).count();
        str::from_utf8(&self.0[..length]).expect("it was made of ASCII")
    }
}

impl FromStr for Traddr {
    type Err = TraddrError;

    fn from_str(text: &str) -> Result<Self, TraddrError> {
        let (address, scope) = match text.split_once('%') {
            Some((address, scope)) => (address, Some(scope)),
            None => (text, None),
        };
        let ip: IpAddr = address.parse().map_err(|_| TraddrError::NotAnAddress)?;
        let Some(scope) = scope else {
            return Ok(ip.into());
        };
        if !is_link_local(ip) {
            return Err(TraddrError::NotLinkLocal(ip));
        }
        let scope =
            Scope::parse(scope).ok_or_else(|| TraddrError::NotAnInterface(scope.to_owned()))?;
        Ok(Self {
            ip,
            scope: Some(scope),
        })
    }
}

impl From<IpAddr> for Traddr {
    fn from(ip: IpAddr) -> Self {
        Self { ip, scope: None }
    }
}

impl fmt::Display for Traddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scope {
            None => self.ip.fmt(f),
            Some(scope) => write!(f, "{}%{}", self.ip, scope.as_str()),
        }
    }
}

impl fmt::Debug for Traddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Trid {
    /// Creates a transport address with a port.
    #[must_use]
    pub fn new(address: impl Into<Traddr>, port: u16) -> Self {
        let address = address.into();
        Self { address, port }
    }

    /// Parses `ADDR`, `ADDR:PORT`, `[V6]` or `[V6]:PORT`.
    pub fn parse(text: &str, port_default: u16) -> Result<Self, TraddrError> {
        let (address, port) = split_port(text)?;
        let port = port.unwrap_or(port_default);
        Ok(Self { address, port })
    }

    /// Returns the socket address, or `None` if its interface must be resolved.
    #[must_use]
    pub fn unscoped(self) -> Option<SocketAddr> {
        let is_complete = self.address.scope.is_none();
        is_complete.then(|| SocketAddr::new(self.address.ip, self.port))
    }

    /// Returns the socket address, with the interface resolved as in [`Traddr::resolve`].
    pub fn resolve(self) -> Result<SocketAddr, TraddrError> {
        Ok(self.address.resolve()?.at(self.port))
    }
}

impl FromStr for Trid {
    type Err = TraddrError;

    fn from_str(text: &str) -> Result<Self, TraddrError> {
        let (address, port) = split_port(text)?;
        let port = port.ok_or(TraddrError::NotAnAddress)?;
        Ok(Self { address, port })
    }
}

fn split_port(text: &str) -> Result<(Traddr, Option<u16>), TraddrError> {
    let (address, port) = if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').ok_or(TraddrError::NotAnAddress)?;
        if !address.contains(':') {
            return Err(TraddrError::NotAnAddress);
        }
        match rest.strip_prefix(':') {
            None if !rest.is_empty() => return Err(TraddrError::NotAnAddress),
            port => (address, port),
        }
    } else {
        match text.split_once(':') {
            // An IPv6 address without a port has several colons.
            Some((address, port)) if !port.contains(':') => (address, Some(port)),
            _ => (text, None),
        }
    };
    let port = port.map(str::parse).transpose();
    let port = port.map_err(|_| TraddrError::NotAnAddress)?;
    Ok((address.parse()?, port))
}

impl From<SocketAddr> for Trid {
    fn from(address: SocketAddr) -> Self {
        let scoped = ScopedAddr::from(address);
        let scope = match scoped.scope_id() {
            0 => None,
            index => {
                let name = name_of(index).unwrap_or_else(|| index.to_string());
                Scope::parse(&name)
            }
        };
        let ip = scoped.ip();
        Self::new(Traddr { ip, scope }, address.port())
    }
}

impl fmt::Display for Trid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, port } = self;
        match address.ip {
            IpAddr::V4(_) => write!(f, "{address}:{port}"),
            IpAddr::V6(_) => write!(f, "[{address}]:{port}"),
        }
    }
}

impl fmt::Debug for Trid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns both ends of a new connection. A link-local remote address without a scope gets the
/// local address's scope, because both are on one link.
///
/// # Errors
/// [`TraddrError::NoScope`] or [`TraddrError::DifferentLinks`].
pub fn ends(
    remote: SocketAddr,
    local: Option<ScopedAddr>,
) -> Result<(SocketAddr, Option<IpAddr>), TraddrError> {
    let mut far = ScopedAddr::from(remote);
    let near = local.filter(|near| near.scope_id() != 0);
    if let Some(near) = near {
        if far.lacks_scope() {
            far = ScopedAddr::new(far.ip(), near.scope_id());
        }
        if far.scope_id() != near.scope_id() {
            return Err(TraddrError::DifferentLinks(near, far));
        }
    }
    if far.lacks_scope() {
        return Err(TraddrError::NoScope(far.ip()));
    }
    Ok((far.at(remote.port()), local.map(ScopedAddr::ip)))
}

#[cfg(feature = "serde")]
mod json {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Traddr, Trid};

    macro_rules! as_text {
        ($($type:ty)*) => {$(
            impl Serialize for $type {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.collect_str(self)
                }
            }

            impl<'de> Deserialize<'de> for $type {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    let text = String::deserialize(deserializer)?;
                    let parsed = text.parse();
                    parsed.map_err(|error| D::Error::custom(format_args!("{text:?}: {error}")))
                }
            }
        )*};
    }

    as_text! { Traddr Trid }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traddr(text: &str) -> Result<Traddr, TraddrError> {
        text.parse()
    }

    #[test]
    fn a_scope_is_an_interface_of_a_link_local_address() {
        let parsed = traddr("fe80::1%lo").unwrap();
        assert_eq!(parsed.to_string(), "fe80::1%lo");
        let resolved = parsed.resolve().unwrap();
        assert_eq!(resolved.to_string(), "fe80::1%lo");
        let index = resolved.scope_id();
        let by_index = traddr(&format!("fe80::1%{index}")).unwrap();
        assert_eq!(by_index.resolve(), Ok(resolved));
        assert_eq!(Trid::from(resolved.at(9)), Trid::new(parsed, 9));
        assert!(!parsed.lacks_scope() && traddr("fe80::1").unwrap().lacks_scope());
        let missing = traddr("fe80::1%no-such-dev").unwrap();
        let error = missing.resolve().unwrap_err();
        assert!(error.to_string().contains("\"no-such-dev\""), "{error}");
        for (text, expected) in [
            ("2001:db8::1%lo", "2001:db8::1 has no scope"),
            ("192.0.2.1%lo", "192.0.2.1 has no scope"),
            ("fe80::1%", "\"\" is not the name"),
            ("fe80::1%a/b", "\"a/b\" is not the name"),
            ("fe80::1%sixteen-letters-", "is not the name"),
            ("%lo", "not an IP address"),
            ("eth0", "not an IP address"),
        ] {
            let error = traddr(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn ports_follow_an_address() {
        for (text, expected) in [
            ("192.0.2.1", Some(("192.0.2.1:4420", "192.0.2.1"))),
            ("192.0.2.1:4421", Some(("192.0.2.1:4421", "192.0.2.1"))),
            ("2001:db8::1", Some(("[2001:db8::1]:4420", "2001:db8::1"))),
            ("[2001:db8::1]", Some(("[2001:db8::1]:4420", "2001:db8::1"))),
            ("[2001:db8::1]:9", Some(("[2001:db8::1]:9", "2001:db8::1"))),
            (
                "[fe80::1%eth0]:9",
                Some(("[fe80::1%eth0]:9", "fe80::1%eth0")),
            ),
            ("[fe80::1%3]", Some(("[fe80::1%3]:4420", "fe80::1%3"))),
            (
                "fe80::1%eth0",
                Some(("[fe80::1%eth0]:4420", "fe80::1%eth0")),
            ),
            ("[192.0.2.1]:9", None),
            ("[fe80::1%eth0]9", None),
            ("192.0.2.1:70000", None),
            ("192.0.2.1:", None),
            ("eth0", None),
            ("", None),
        ] {
            let parsed = Trid::parse(text, 4420).ok();
            if let Some(trid) = parsed {
                assert_eq!(trid.to_string().parse(), Ok(trid), "{text}");
            }
            let parsed = parsed.map(|trid| (trid.to_string(), trid.address.to_string()));
            let expected = expected.map(|(trid, address)| (trid.to_owned(), address.to_owned()));
            assert_eq!(parsed, expected, "{text}");
        }
        for without_port in ["fe80::1%eth0", "::0", "192.0.2.1", "[::1]"] {
            assert!(without_port.parse::<Trid>().is_err(), "{without_port}");
        }
        let zero: Trid = "[::]:0".parse().unwrap();
        assert_eq!(zero.port, 0);
    }

    #[test]
    fn both_ends_are_at_one_link() {
        let far = |scope| ScopedAddr::new("fe80::1".parse().unwrap(), scope);
        let near = |scope| ScopedAddr::new("fe80::2".parse().unwrap(), scope);
        let both = Ok((far(3).at(9), Some(near(3).ip())));
        assert_eq!(ends(far(3).at(9), Some(near(3))), both);
        assert_eq!(ends(far(3).at(9), Some(near(0))), both);
        assert_eq!(ends(far(0).at(9), Some(near(3))), both);
        assert_eq!(ends(far(3).at(9), None), Ok((far(3).at(9), None)));
        let other = "192.0.2.1:9".parse().unwrap();
        assert_eq!(ends(other, None), Ok((other, None)));
        let ambiguous = ends(far(0).at(9), None).unwrap_err().to_string();
        assert!(ambiguous.contains("such as fe80::1%eth0"), "{ambiguous}");
        for remote in [far(4).at(9), other] {
            let error = ends(remote, Some(near(3)));
            assert!(matches!(error, Err(TraddrError::DifferentLinks(..))));
        }
    }
}
