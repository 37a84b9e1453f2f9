use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::sys;
use crate::source::{Echo, Reached};

const TIMEOUT: Duration = Duration::from_millis(700);

// ICMP types (RFC 792, RFC 4443).
const ECHO_REQUEST_V4: u8 = 8;
const ECHO_REPLY_V4: u8 = 0;
const ECHO_REQUEST_V6: u8 = 128;
const ECHO_REPLY_V6: u8 = 129;
const ICMP_HEADER: usize = 8;

/// Sends an unfragmented echo request, like `ping -M do -s SIZE -c 1`; `packet_bytes` includes the
/// IP header.
pub(super) fn echo(peer: IpAddr, packet_bytes: u32) -> io::Result<Echo> {
    let (socket, is_raw) = open(peer)?;
    let ip_header = if peer.is_ipv4() { 20 } else { 40 };
    let message = request(peer, (packet_bytes as usize).saturating_sub(ip_header));
    socket.connect(SocketAddr::new(peer, 0))?;
    match socket.send(&message) {
        Ok(_) => {}
        Err(error) if is_too_big(&error) => return Ok(Echo::TooBig),
        Err(error) => return Err(error),
    }
    let deadline = Instant::now() + TIMEOUT;
    let mut buffer = vec![0; packet_bytes as usize + 128];
    while let Some(left) = deadline.checked_duration_since(Instant::now()) {
        socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match socket.recv(&mut buffer) {
            Ok(filled) if is_reply(peer, is_raw, &buffer[..filled], &message) => {
                return Ok(Echo::Answered);
            }
            Ok(_) => {}
            Err(error) if is_too_big(&error) => return Ok(Echo::TooBig),
            Err(error) if is_time_out(&error) => return Ok(Echo::Silent),
            Err(error) => return Err(error),
        }
    }
    Ok(Echo::Silent)
}

/// Opens a ping socket, or if that is not permitted, a raw socket. Returns true for a raw socket.
fn open(peer: IpAddr) -> io::Result<(UdpSocket, bool)> {
    let (family, protocol) = match peer {
        IpAddr::V4(_) => (libc::AF_INET, libc::IPPROTO_ICMP),
        IpAddr::V6(_) => (libc::AF_INET6, libc::IPPROTO_ICMPV6),
    };
    let (fd, is_raw): (OwnedFd, bool) = match sys::socket(family, libc::SOCK_DGRAM, protocol) {
        Ok(fd) => (fd, false),
        Err(_) => (sys::socket(family, libc::SOCK_RAW, protocol)?, true),
    };
    // PROBE prevents fragmentation, and ignores a path MTU learnt earlier.
    match peer {
        IpAddr::V4(_) => sys::set_option(
            &fd,
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_PROBE,
        )?,
        IpAddr::V6(_) => sys::set_option(
            &fd,
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_PROBE,
        )?,
    }
    Ok((UdpSocket::from(fd), is_raw))
}

fn request(peer: IpAddr, length: usize) -> Vec<u8> {
    let mut message = vec![0; length.max(ICMP_HEADER)];
    message[0] = if peer.is_ipv4() {
        ECHO_REQUEST_V4
    } else {
        ECHO_REQUEST_V6
    };
    // The identifier marks replies to this process; a ping socket replaces it.
    message[4..6].copy_from_slice(&(std::process::id() as u16).to_be_bytes());
    message[6..8].copy_from_slice(&(length as u16).to_be_bytes());
    if peer.is_ipv4() {
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    message
}

fn checksum(message: &[u8]) -> u16 {
    let words = message.chunks(2);
    let mut sum: u32 = words
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn is_reply(peer: IpAddr, is_raw: bool, packet: &[u8], request: &[u8]) -> bool {
    // A raw IPv4 socket also returns the IP header.
    let header = match packet.first() {
        Some(first) if is_raw && peer.is_ipv4() => usize::from(first & 0xf) * 4,
        _ => 0,
    };
    let Some(message) = packet.get(header..) else {
        return false;
    };
    let kind = if peer.is_ipv4() {
        ECHO_REPLY_V4
    } else {
        ECHO_REPLY_V6
    };
    let is_ours = !is_raw || message.get(4..6) == request.get(4..6);
    message.first() == Some(&kind) && message.len() == request.len() && is_ours
}

pub(super) fn udp(peer: IpAddr, port: u16) -> io::Result<Reached> {
    let any: SocketAddr = match peer {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    // One byte is no valid RoCE packet, so RoCE endpoints drop the datagram.
    let outcome = socket
        .connect(SocketAddr::new(peer, port))
        .and_then(|()| socket.send(&[0]))
        .and_then(|_| socket.recv(&mut [0; 64]));
    match outcome {
        Ok(_) => Ok(Reached::Silent),
        Err(error) if is_time_out(&error) => Ok(Reached::Silent),
        Err(error) => match error.raw_os_error() {
            Some(libc::ECONNREFUSED) => Ok(Reached::Refused),
            Some(libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EACCES) => Ok(Reached::Unreachable),
            Some(libc::EPERM) => Ok(Reached::FilteredHere),
            _ => Err(error),
        },
    }
}

fn is_too_big(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}

fn is_time_out(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksummed_message_sums_to_zero() {
        let message = request(Ipv4Addr::LOCALHOST.into(), 101);
        assert_eq!(checksum(&message), 0);
    }

    #[test]
    fn loopback_refuses_a_port_without_a_listener() {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        assert_eq!(
            udp(Ipv4Addr::LOCALHOST.into(), port).unwrap(),
            Reached::Silent
        );
        drop(free);
        assert_eq!(
            udp(Ipv4Addr::LOCALHOST.into(), port).unwrap(),
            Reached::Refused
        );
    }

    #[test]
    fn a_reply_is_known_by_type_length_and_identifier() {
        let peer = IpAddr::from(Ipv4Addr::LOCALHOST);
        let request = request(peer, 16);
        let mut reply = request.clone();
        assert!(!is_reply(peer, false, &reply, &request), "a request");
        reply[0] = ECHO_REPLY_V4;
        assert!(is_reply(peer, false, &reply, &request));
        assert!(!is_reply(peer, false, &reply[..12], &request), "shorter");
        let mut raw = vec![0x45; 20];
        raw.extend(&reply);
        assert!(is_reply(peer, true, &raw, &request));
        raw[24] ^= 1;
        assert!(!is_reply(peer, true, &raw, &request), "for another socket");
        assert!(!is_reply(peer, true, &[0x4f], &request));
    }
}
