//! UDP sockets for RoCE v2.
//!
//! Why `unsafe` here: no dependency offers safe batches with control messages (`recvmmsg`,
//! `sendmmsg`), segmentation offload or reuseport filters.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

use cairn_base::ScopedAddr;
use cairn_rdma::SOCKET_RECEIVE_BYTES;

use super::qpn_filter::{PASS, by_number, compare, exchange};

/// Send buffer in bytes. The system may grant less.
const SEND_BUFFER: c_int = 4 << 20;
/// Offset from the UDP header of the word whose low 24 bits are the destination queue pair number.
const DEST_QPN: u32 = 8 + 4;

/// Offset of the network header in filters (`SKF_NET_OFF` in linux/filter.h).
const NETWORK: u32 = -0x10_0000_i32 as u32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlowKey {
    pub address: IpAddr,
    pub port: u16,
}

impl FlowKey {
    fn returns(&self, value: u32) -> Vec<libc::sock_filter> {
        let words = |octets: &[u8]| -> Vec<u32> {
            let words = octets.as_chunks::<4>().0.iter();
            words.map(|word| u32::from_be_bytes(*word)).collect()
        };
        let (at, length, address) = match self.address {
            IpAddr::V4(v4) => (12, 20, words(&v4.octets())),
            IpAddr::V6(v6) => (8, 40, words(&v6.octets())),
        };
        let port = (libc::BPF_H, length, u32::from(self.port));
        let words = address.into_iter().zip((at..).step_by(4));
        let mut tests: Vec<_> = words.map(|(word, at)| (libc::BPF_W, at, word)).collect();
        tests.insert(0, port);
        let mut program = Vec::new();
        for (left, (size, at, wanted)) in (1..=tests.len()).rev().zip(tests) {
            let over = 2 * (left - 1) + 1;
            program.push(statement(libc::BPF_LD | size | libc::BPF_ABS, NETWORK + at));
            program.push(compare(libc::BPF_JEQ, wanted, 0, over as u8));
        }
        program.push(statement(libc::BPF_RET | libc::BPF_K, value));
        program
    }
}

/// Non-blocking UDP socket, unconnected so that Linux sends IPv4 identification 0, which the ICRC
/// covers.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    is_ipv4: bool,
}

impl Socket {
    pub(crate) fn bind_receiver(address: SocketAddr, share: bool) -> io::Result<Self> {
        let this = Self::open(address)?;
        if share {
            this.share()?;
        }
        this.set(libc::SOL_UDP, libc::UDP_GRO, &1)?;
        if this.is_ipv4 {
            this.set(libc::IPPROTO_IP, libc::IP_PKTINFO, &1)?;
            this.set(libc::IPPROTO_IP, libc::IP_RECVTOS, &1)?;
        } else {
            this.set(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, &1)?;
            this.set(libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, &1)?;
            // RoCE over IPv6 uses UDP checksum 0 (annex A17.3), and Linux drops such packets by
            // default.
            this.set(libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, &1)?;
        }
        grow_receive_buffer(this.raw())?;
        this.bind(address)?;
        Ok(this)
    }

    pub(crate) fn bind_sender(address: SocketAddr) -> io::Result<Self> {
        let this = Self::open(address)?;
        attach(this.raw(), libc::SO_ATTACH_FILTER, &NOTHING)?;
        this.bind(address)?;
        Ok(this)
    }

    fn open(address: SocketAddr) -> io::Result<Self> {
        let is_ipv4 = address.is_ipv4();
        let family = if is_ipv4 {
            libc::AF_INET
        } else {
            libc::AF_INET6
        };
        let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: the call passes no pointers.
        let fd = check(unsafe { libc::socket(family, kind, 0) })?;
        // SAFETY: the new descriptor has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let this = Self { fd, is_ipv4 };
        // `PMTUDISC_PROBE` prevents fragmentation, and makes Linux send IPv4 identification 0 and
        // ignore ICMP messages about the path MTU, which may be forged.
        if is_ipv4 {
            let level = libc::IP_PMTUDISC_PROBE;
            this.set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &level)?;
        } else {
            this.set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &1)?;
            let level = libc::IPV6_PMTUDISC_PROBE;
            this.set(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, &level)?;
        }
        grow_send_buffer(this.raw())?;
        Ok(this)
    }

    fn bind(&self, address: SocketAddr) -> io::Result<()> {
        let (storage, length) = to_storage(address);
        // SAFETY: `storage` is an address of `length` bytes.
        check(unsafe { libc::bind(self.raw(), (&raw const storage).cast(), length) })?;
        Ok(())
    }

    /// Permits further sockets of this process at the address. The first socket binds exclusively,
    /// to exclude other processes.
    pub(crate) fn share(&self) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_REUSEPORT, &1)
    }

    /// Makes the kernel distribute packets over the sockets of this address. Socket `n`, in the
    /// order of binding, receives the flows paired with `n`; other packets, to queue pair number
    /// `qpn`, go to socket `qpn >> low_bits`.
    pub(crate) fn spread(&self, flows: &[(FlowKey, u32)], low_bits: u32) -> io::Result<()> {
        let mut program = Vec::new();
        for (flow, turn) in flows {
            program.extend(flow.returns(*turn));
        }
        program.extend([
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 4),
            statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0x00ff_ffff),
            statement(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, low_bits),
            statement(libc::BPF_RET | libc::BPF_A, 0),
        ]);
        attach(self.raw(), libc::SO_ATTACH_REUSEPORT_CBPF, &program)
    }

    pub(crate) fn admit(&self, numbers: &[u32], flows: &[FlowKey]) -> io::Result<()> {
        let of_flows = flows.iter().flat_map(|flow| flow.returns(u32::MAX));
        let narrow: Vec<_> = of_flows.chain(by_number(DEST_QPN, numbers)).collect();
        exchange(self.raw(), &narrow, &[PASS])
    }

    pub(crate) fn set_class(&self, traffic_class: u8) -> io::Result<()> {
        let class = c_int::from(traffic_class);
        if self.is_ipv4 {
            self.set(libc::IPPROTO_IP, libc::IP_TOS, &class)?;
        } else {
            self.set(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &class)?;
        }
        set_priority(self.raw(), traffic_class)
    }

    fn set<T>(&self, level: c_int, option: c_int, value: &T) -> io::Result<()> {
        set(self.raw(), level, option, value)
    }

    #[must_use]
    pub(crate) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    #[cfg(test)]
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        std::net::UdpSocket::from(self.fd.try_clone()?).local_addr()
    }
}

/// Returns the socket priority of a traffic class: its top three bits, which the `egress-qos-map`
/// of a VLAN interface converts to a PCP.
///
/// Linux would derive another priority from the traffic class (ip(7), `rt_tos2priority`).
pub(super) const fn service_level(traffic_class: u8) -> u8 {
    traffic_class >> 5
}

const HIGHEST_UNPRIVILEGED: c_int = 6;

/// Sets the socket priority of a traffic class. Uses priority 6 if 7 is not permitted.
pub(super) fn set_priority(fd: RawFd, traffic_class: u8) -> io::Result<()> {
    let level = c_int::from(service_level(traffic_class));
    let set_to = |priority: c_int| set(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, &priority);
    set_to(level).or_else(|_| set_to(level.min(HIGHEST_UNPRIVILEGED)))
}

pub(super) const NOTHING: [libc::sock_filter; 1] = [statement(libc::BPF_RET, 0)];

pub(super) const fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}

pub(super) fn attach(fd: RawFd, option: c_int, program: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut(),
    };
    set(fd, libc::SOL_SOCKET, option, &program)
}

pub(super) fn set<T>(fd: RawFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as socklen_t;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: `value` points to `length` bytes of the option's type.
    check(unsafe { libc::setsockopt(fd, level, option, value, length) })?;
    Ok(())
}

pub(super) fn grow_receive_buffer(fd: RawFd) -> io::Result<()> {
    let size = &(SOCKET_RECEIVE_BYTES as c_int);
    set(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, size)
        .or_else(|_| set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, size))
}

pub(super) fn grow_send_buffer(fd: RawFd) -> io::Result<()> {
    let size = &SEND_BUFFER;
    set(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, size)
        .or_else(|_| set(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, size))
}

pub(super) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

pub(super) fn to_storage(address: SocketAddr) -> (sockaddr_storage, socklen_t) {
    // SAFETY: zeros are a valid value of this plain structure.
    let mut storage: sockaddr_storage = unsafe { zeroed() };
    let length = match address {
        SocketAddr::V4(v4) => {
            let value = sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is large enough and aligned for any address.
            unsafe { (&raw mut storage).cast::<sockaddr_in>().write(value) };
            size_of::<sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let value = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: the storage is large enough and aligned for any address.
            unsafe { (&raw mut storage).cast::<sockaddr_in6>().write(value) };
            size_of::<sockaddr_in6>()
        }
    };
    (storage, length as socklen_t)
}

pub(super) fn from_storage(storage: &sockaddr_storage) -> Option<SocketAddr> {
    let storage = std::ptr::from_ref(storage);
    // SAFETY: the storage is initialised, and large enough and aligned for both families'
    // structures, which are plain data.
    unsafe {
        match c_int::from((*storage).ss_family) {
            libc::AF_INET => {
                let v4 = storage.cast::<sockaddr_in>().read();
                let ip = v4.sin_addr.s_addr.to_ne_bytes().into();
                let port = u16::from_be(v4.sin_port);
                Some(SocketAddrV4::new(ip, port).into())
            }
            libc::AF_INET6 => {
                let v6 = storage.cast::<sockaddr_in6>().read();
                let ip = v6.sin6_addr.s6_addr.into();
                let port = u16::from_be(v6.sin6_port);
                Some(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

pub(crate) fn source_for(remote: SocketAddr) -> io::Result<ScopedAddr> {
    let any: IpAddr = match remote {
        SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = std::net::UdpSocket::bind((any, 0))?;
    socket.connect(remote)?;
    Ok(socket.local_addr()?.into())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn option(socket: &Socket, level: c_int, option: c_int) -> c_int {
        let (mut value, mut length) = (0 as c_int, size_of::<c_int>() as socklen_t);
        let into = (&raw mut value).cast();
        // SAFETY: `into` points to `length` bytes, and `value` and `length` outlive the call.
        let done = unsafe { libc::getsockopt(socket.raw(), level, option, into, &raw mut length) };
        check(done).unwrap();
        value
    }

    #[test]
    fn a_class_is_that_of_packets_and_their_priority_its_service_level() {
        let cases: [(IpAddr, c_int, c_int); 2] = [
            (Ipv4Addr::LOCALHOST.into(), libc::IPPROTO_IP, libc::IP_TOS),
            (
                Ipv6Addr::LOCALHOST.into(),
                libc::IPPROTO_IPV6,
                libc::IPV6_TCLASS,
            ),
        ];
        for (address, level, of_class) in cases {
            let socket = Socket::bind_sender(SocketAddr::new(address, 0)).unwrap();
            for (class, priority) in [(98, 3), (0, 0), (104, 3), (184, 5), (32, 1)] {
                socket.set_class(class).unwrap();
                let is = option(&socket, level, of_class);
                assert_eq!(is, c_int::from(class), "{address}");
                let is = option(&socket, libc::SOL_SOCKET, libc::SO_PRIORITY);
                assert_eq!(is, priority, "{address}: ToS {class}");
            }
            socket.set_class(0xe0).unwrap();
            let highest = option(&socket, libc::SOL_SOCKET, libc::SO_PRIORITY);
            assert!(highest == 7 || highest == HIGHEST_UNPRIVILEGED, "{highest}");
        }
    }

    #[test]
    fn what_adapters_send_over_ipv6_without_a_checksum_arrives() {
        let localhost = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 0);
        let receiver = Socket::bind_receiver(localhost, false).unwrap();
        let adapter = std::net::UdpSocket::bind(localhost).unwrap();
        set(
            adapter.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_NO_CHECK6_TX,
            &1,
        )
        .unwrap();
        let remote = receiver.local_addr().unwrap();
        assert_eq!(adapter.send_to(b"roce", remote).unwrap(), 4);

        let mut bytes = [0u8; 8];
        let (room, length) = (bytes.as_mut_ptr().cast(), bytes.len());
        // SAFETY: the buffer has `length` bytes.
        let received = unsafe { libc::recv(receiver.raw(), room, length, 0) };
        assert_eq!(received, 4, "{}", io::Error::last_os_error());
    }
}
