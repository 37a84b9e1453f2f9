//! Network interface of an address.
//!
//! Why `unsafe` here: `getifaddrs` returns a linked list of C structures, and an ioctl returns an
//! interface's MTU.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::zeroed;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use cairn_base::ScopedAddr;

use super::socket::{check, from_storage};

/// Minimum difference between interface MTU and path MTU in bytes. The value is rdma_rxe's, because
/// both ends must use the same path MTU.
const OVERHEAD: u32 = 80;

#[derive(Debug, Clone)]
pub(crate) struct Interface {
    name: CString,
    pub index: u32,
    pub is_loopback: bool,
}

pub(crate) fn path_mtu_code(address: ScopedAddr) -> io::Result<u8> {
    let room = Interface::of(address)?.mtu()?.saturating_sub(OVERHEAD);
    Ok((1..=5)
        .rev()
        .find(|&code| mtu_of_code(code) <= room)
        .unwrap_or(1))
}

/// Cache of path MTUs by local address. An entry is valid for one second.
#[derive(Debug, Default)]
pub(crate) struct PathMtus {
    known: Vec<(IpAddr, Instant, u8)>,
}

impl PathMtus {
    const AGE: Duration = Duration::from_secs(1);
    const MOST: usize = 64;

    pub(crate) fn of(
        &mut self,
        address: IpAddr,
        now: Instant,
        look_up: impl FnOnce() -> io::Result<u8>,
    ) -> io::Result<u8> {
        let counts = |since: Instant| now.saturating_duration_since(since) < Self::AGE;
        let mut known = self.known.iter();
        if let Some((.., code)) = known.find(|(of, since, _)| *of == address && counts(*since)) {
            return Ok(*code);
        }
        let code = look_up()?;
        self.known
            .retain(|(of, since, _)| *of != address && counts(*since));
        self.known.truncate(Self::MOST - 1);
        self.known.push((address, now, code));
        Ok(code)
    }
}

/// Returns the payload in bytes of a path MTU code (IBTA 12.6.5.7).
#[must_use]
pub(crate) const fn mtu_of_code(code: u8) -> u32 {
    128 << code
}

impl Interface {
    pub(crate) fn of(address: ScopedAddr) -> io::Result<Self> {
        // The loopback interface has all addresses 127.x.y.z, but lists only 127.0.0.1.
        let wanted = match address.ip() {
            IpAddr::V4(v4) if v4.is_loopback() => IpAddr::from(Ipv4Addr::LOCALHOST).into(),
            _ => address,
        };
        let found = Self::find(wanted)?;
        found.ok_or_else(|| io::Error::new(io::ErrorKind::AddrNotAvailable, "no interface has it"))
    }

    fn find(wanted: ScopedAddr) -> io::Result<Option<Self>> {
        let mut list = std::ptr::null_mut();
        // SAFETY: the result is written to `list`, which is freed below.
        check(unsafe { libc::getifaddrs(&raw mut list) })?;
        let mut found = None;
        let mut next = list;
        // SAFETY: the list and its data live until the list is freed. Each address is read as the
        // structure of its family, and only for IP.
        unsafe {
            while let Some(entry) = next.as_ref() {
                next = entry.ifa_next;
                let Some(address) = entry.ifa_addr.as_ref() else {
                    continue;
                };
                let length = match i32::from(address.sa_family) {
                    libc::AF_INET => size_of::<libc::sockaddr_in>(),
                    libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
                    _ => continue,
                };
                let mut storage: libc::sockaddr_storage = zeroed();
                let (from, to) = (entry.ifa_addr.cast::<u8>(), (&raw mut storage).cast::<u8>());
                std::ptr::copy_nonoverlapping(from, to, length);
                let is_it = |found: SocketAddr| match wanted.scope_id() {
                    0 => found.ip() == wanted.ip(),
                    _ => ScopedAddr::from(found) == wanted,
                };
                if from_storage(&storage).is_some_and(is_it) {
                    found = Some(Self {
                        name: CStr::from_ptr(entry.ifa_name).to_owned(),
                        index: libc::if_nametoindex(entry.ifa_name),
                        is_loopback: entry.ifa_flags & libc::IFF_LOOPBACK as u32 != 0,
                    });
                    break;
                }
            }
            libc::freeifaddrs(list);
        }
        Ok(found)
    }

    fn mtu(&self) -> io::Result<u32> {
        let any = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        // SAFETY: zeros are a valid value of this plain structure.
        let mut request: libc::ifreq = unsafe { zeroed() };
        for (to, from) in request.ifr_name[..libc::IFNAMSIZ - 1]
            .iter_mut()
            .zip(self.name.as_bytes())
        {
            *to = *from as libc::c_char;
        }
        // SAFETY: the request is complete, and the ioctl writes an MTU to it.
        let mtu = unsafe {
            check(libc::ioctl(
                any.as_raw_fd(),
                libc::SIOCGIFMTU as _,
                &raw mut request,
            ))?;
            request.ifr_ifru.ifru_mtu
        };
        Ok(mtu as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> ScopedAddr {
        text.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn loopback_takes_the_largest() {
        assert_eq!(path_mtu_code(at("127.0.0.1")).unwrap(), 5);
        assert_eq!(path_mtu_code(at("127.1.2.3")).unwrap(), 5);
        assert_eq!(mtu_of_code(5), 4096);
        let missing = path_mtu_code(at("192.0.2.1"));
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
    }

    #[test]
    fn a_path_mtu_is_looked_up_once_a_second() {
        let (mut mtus, begin) = (PathMtus::default(), Instant::now());
        let mut looks = Vec::new();
        for ms in (0..3000).step_by(100) {
            for address in ["192.0.2.1", "192.0.2.2"] {
                let now = begin + Duration::from_millis(ms);
                let look_up = || {
                    looks.push((address, ms));
                    Ok(3)
                };
                let code = mtus.of(address.parse().unwrap(), now, look_up);
                assert_eq!(code.unwrap(), 3);
            }
        }
        let each = [0, 1000, 2000].map(|ms| [("192.0.2.1", ms), ("192.0.2.2", ms)]);
        assert_eq!(looks, each.concat());
        let missing = mtus.of("192.0.2.3".parse().unwrap(), begin, || {
            Err(io::Error::other("none"))
        });
        assert!(missing.is_err());
        for number in 0..1000_u32 {
            let address = Ipv4Addr::from_bits(number).into();
            assert_eq!(mtus.of(address, begin, || Ok(1)).unwrap(), 1);
        }
        assert_eq!(mtus.known.len(), PathMtus::MOST);
    }

    #[test]
    fn loopback_is_known_as_such() {
        let interface = Interface::of(IpAddr::from(Ipv4Addr::LOCALHOST).into()).unwrap();
        assert!(interface.is_loopback && interface.index != 0);
    }
}
