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
use cairn_roce_proto::wire::cm::LongSend;

/// Minimum difference between interface MTU and path MTU in bytes. The value is rdma_rxe's, because
/// both ends must use the same path MTU.
const OVERHEAD: u32 = 80;

#[derive(Debug, Clone)]
pub(crate) struct Interface {
    name: CString,
    pub index: u32,
    pub is_loopback: bool,
}

/// Packet payloads that fit an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PathMtu {
    pub(crate) code: u8,
    pub(crate) long_send: Option<LongSend>,
}

impl PathMtu {
    const LEAST: Self = Self {
        code: 1,
        long_send: None,
    };

    pub(crate) fn of_payload(bytes: u32) -> Self {
        let fitting = (1..=5).rev().find(|&code| mtu_of_code(code) <= bytes);
        fitting.map_or(Self::LEAST, |code| Self {
            code,
            long_send: LongSend::within(bytes),
        })
    }
}

pub(crate) fn path_mtu(address: ScopedAddr) -> io::Result<PathMtu> {
    let payload = Interface::of(address)?.mtu()?.saturating_sub(OVERHEAD);
    Ok(PathMtu::of_payload(payload))
}

/// Cache of path MTUs by local address. An entry is valid for one second.
#[derive(Debug, Default)]
pub(crate) struct PathMtus {
    known: Vec<(IpAddr, Instant, PathMtu)>,
}

/// Peers whose path may drop packets of a longer SEND.
#[derive(Debug, Default)]
pub(crate) struct ShortPaths {
    known: Vec<(IpAddr, Instant)>,
}

impl ShortPaths {
    const AGE: Duration = Duration::from_secs(3600);

    pub(crate) fn add(&mut self, peer: IpAddr, now: Instant) {
        self.known.retain(|(of, _)| *of != peer);
        let first = self.known.len().saturating_sub(PathMtus::MOST - 1);
        self.known.drain(..first);
        self.known.push((peer, now));
    }

    pub(crate) fn has(&self, peer: IpAddr, now: Instant) -> bool {
        let counts = |since: Instant| now.saturating_duration_since(since) < Self::AGE;
        self.known
            .iter()
            .any(|(of, since)| *of == peer && counts(*since))
    }
}

impl PathMtus {
    const AGE: Duration = Duration::from_secs(1);
    const MOST: usize = 64;

    pub(crate) fn of(
        &mut self,
        address: IpAddr,
        now: Instant,
        look_up: impl FnOnce() -> io::Result<PathMtu>,
    ) -> io::Result<PathMtu> {
        let counts = |since: Instant| now.saturating_duration_since(since) < Self::AGE;
        let mut known = self.known.iter();
        if let Some((.., mtu)) = known.find(|(of, since, _)| *of == address && counts(*since)) {
            return Ok(*mtu);
        }
        let mtu = look_up()?;
        self.known
            .retain(|(of, since, _)| *of != address && counts(*since));
        self.known.truncate(Self::MOST - 1);
        self.known.push((address, now, mtu));
        Ok(mtu)
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
    use cairn_roce_proto::wire::packet::ICRC_LEN;
    use cairn_roce_proto::wire::{Bth, Header, Ieth};

    fn at(text: &str) -> ScopedAddr {
        text.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn loopback_takes_the_largest() {
        let largest = PathMtu {
            code: 5,
            long_send: Some(LongSend::MAX),
        };
        assert_eq!(path_mtu(at("127.0.0.1")).unwrap(), largest);
        assert_eq!(path_mtu(at("127.1.2.3")).unwrap(), largest);
        assert_eq!(mtu_of_code(5), 4096);
        let missing = path_mtu(at("192.0.2.1"));
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
    }

    #[test]
    fn longer_sends_need_room_for_their_headers() {
        let cases = [
            (79, 1, None),
            (1500, 3, None),
            (4176, 5, None),
            (4200, 5, Some(4120)),
            (4239, 5, Some(4159)),
        ];
        let large = [
            (4240, 5, Some(4160)),
            (9000, 5, Some(4160)),
            (65_536, 5, Some(4160)),
        ];
        for (mtu, code, bytes) in cases.into_iter().chain(large) {
            let found = PathMtu::of_payload(u32::saturating_sub(mtu, OVERHEAD));
            assert_eq!(found.code, code, "{mtu}");
            assert_eq!(found.long_send.map(LongSend::bytes), bytes, "{mtu}");
        }
        const { assert!(OVERHEAD as usize >= 40 + 8 + Bth::LEN + Ieth::LEN + ICRC_LEN) };
    }

    #[test]
    fn a_short_path_is_remembered_for_a_while() {
        let (mut short, begin) = (ShortPaths::default(), Instant::now());
        let peer = |number: u32| Ipv4Addr::from_bits(number).into();
        short.add(peer(0), begin);
        assert!(short.has(peer(0), begin) && !short.has(peer(1), begin));
        assert!(!short.has(peer(0), begin + ShortPaths::AGE));
        (1..1000).for_each(|number| short.add(peer(number), begin));
        assert_eq!(short.known.len(), PathMtus::MOST);
        assert!(short.has(peer(999), begin) && !short.has(peer(0), begin));
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
                    Ok(PathMtu::of_payload(1024))
                };
                let code = mtus.of(address.parse().unwrap(), now, look_up);
                assert_eq!(code.unwrap().code, 3);
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
            let least = mtus.of(address, begin, || Ok(PathMtu::LEAST));
            assert_eq!(least.unwrap(), PathMtu::LEAST);
        }
        assert_eq!(mtus.known.len(), PathMtus::MOST);
    }

    #[test]
    fn loopback_is_known_as_such() {
        let interface = Interface::of(IpAddr::from(Ipv4Addr::LOCALHOST).into()).unwrap();
        assert!(interface.is_loopback && interface.index != 0);
    }
}
