//! Netlink client (RFC 3549).

use std::fs::File;
use std::io::{self, Read, Write};
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, netlink, socket_with};

const HEADER: usize = 16;
/// Receive buffer in bytes; the kernel sends parts of up to 32 KiB.
const ANSWER_BYTES: usize = 32 * 1024;
const TIMEOUT: Duration = Duration::from_secs(1);

/// Message of the kernel's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Type, such as RTM_NEWNEIGH.
    pub kind: u16,
    /// Bytes after the netlink header.
    pub body: Vec<u8>,
}

/// Netlink socket, with a timeout of one second for answers.
#[derive(Debug)]
pub struct Netlink {
    socket: File,
    buffer: Box<[u8]>,
}

impl Netlink {
    /// Opens a socket of a protocol, such as NETLINK_ROUTE or NETLINK_RDMA.
    pub fn open(protocol: i32) -> io::Result<Self> {
        let protocol = NonZeroU32::new(protocol as u32).map(Protocol::from_raw);
        let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
        let socket = socket_with(family, SocketType::RAW, flags, protocol)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(TIMEOUT))?;
        Ok(Self {
            socket: File::from(socket),
            buffer: vec![0; ANSWER_BYTES].into(),
        })
    }

    /// Sends a request and returns all messages of the answer.
    pub fn request(&mut self, kind: u16, flags: i32, body: &[u8]) -> io::Result<Vec<Message>> {
        let length = HEADER + body.len();
        let mut request = Vec::with_capacity(length);
        request.extend((length as u32).to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend(((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
        request.extend([0; 8]);
        request.extend(body);
        self.socket.write_all(&request)?;
        let mut messages = Vec::new();
        loop {
            let filled = self.socket.read(&mut self.buffer)?;
            if filled == 0 || !collect(&self.buffer[..filled], &mut messages)? {
                return Ok(messages);
            }
        }
    }
}

/// Opens a non-blocking socket that becomes readable when an address or link changes
/// (rtnetlink(7)).
pub fn address_reports() -> io::Result<OwnedFd> {
    let groups = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
    reports(None, groups as u32)
}

/// Opens a non-blocking socket that receives the kernel's device events (uevents).
///
/// Each datagram contains `ACTION@DEVPATH` and `KEY=VALUE` texts, each terminated by a zero byte.
pub fn device_reports() -> io::Result<OwnedFd> {
    /// Multicast group of events sent by the kernel (lib/kobject_uevent.c).
    const KERNEL: u32 = 1;
    reports(Some(netlink::KOBJECT_UEVENT), KERNEL)
}

fn reports(protocol: Option<Protocol>, groups: u32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
    rustix::net::bind(&socket, &netlink::SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// Appends the messages of one part of an answer. Returns false after the last part. Fails if the
/// kernel reports an error.
pub fn collect(mut answer: &[u8], messages: &mut Vec<Message>) -> io::Result<bool> {
    let mut goes_on = false;
    while let Some(length) = u32_at(answer, 0).map(|length| length as usize) {
        if length < HEADER || length > answer.len() {
            return Err(impossible_length());
        }
        let kind = u16_at(answer, 4).unwrap_or_default();
        let flags = i32::from(u16_at(answer, 6).unwrap_or_default());
        let body = &answer[HEADER..length];
        match i32::from(kind) {
            libc::NLMSG_DONE | libc::NLMSG_ERROR => {
                return match u32_at(body, 0).ok_or_else(impossible_length)? as i32 {
                    code @ ..0 => Err(io::Error::from_raw_os_error(code.saturating_neg())),
                    _ => Ok(false),
                };
            }
            _ => messages.push(Message {
                kind,
                body: body.to_owned(),
            }),
        }
        goes_on = flags & libc::NLM_F_MULTI != 0;
        answer = &answer[length.next_multiple_of(4).min(answer.len())..];
    }
    Ok(goes_on)
}

fn impossible_length() -> io::Error {
    io::Error::other("a netlink message of an impossible length")
}

/// Parses attributes into kinds and values; `rest` begins after the message's fixed part.
#[must_use]
pub fn attributes(mut rest: &[u8]) -> Vec<(u16, &[u8])> {
    let mut found = Vec::new();
    while let (Some(length), Some(kind)) = (u16_at(rest, 0), u16_at(rest, 2)) {
        let length = usize::from(length);
        if length < 4 || length > rest.len() {
            break;
        }
        // The two top bits of the kind are flags (NLA_TYPE_MASK).
        found.push((kind & 0x3fff, &rest[4..length]));
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
    }
    found
}

/// Returns the value of the first attribute of a kind.
#[must_use]
pub fn find<'a>(attributes: &[(u16, &'a [u8])], wanted: u16) -> Option<&'a [u8]> {
    let found = attributes.iter().find(|(kind, _)| *kind == wanted)?;
    Some(found.1)
}

/// Appends an attribute, padded to 4 bytes.
pub fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend((value.len() as u16 + 4).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Reads two bytes at offset `at` in native byte order; `None` beyond the end.
#[must_use]
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Reads four bytes at offset `at` in native byte order; `None` beyond the end.
#[must_use]
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_they_are_written() {
        let mut body = Vec::new();
        attribute(&mut body, 1, b"abc");
        attribute(&mut body, 0x8002, b"defgh");
        assert_eq!(attributes(&body), [(1, &b"abc"[..]), (2, &b"defgh"[..])]);
    }

    #[test]
    fn broken_lengths_end_the_reading() {
        assert!(attributes(&[0, 0, 1, 0]).is_empty());
        assert!(attributes(&[255, 255, 1, 0]).is_empty());
        assert!(collect(&[5, 0, 0, 0, 0, 0, 0, 0], &mut Vec::new()).is_err());
    }

    #[test]
    fn the_end_of_an_answer_may_be_an_error() {
        for kind in [libc::NLMSG_DONE, libc::NLMSG_ERROR] {
            let end_with = |body: &[u8]| {
                let mut answer = vec![0; HEADER];
                answer[0] = (HEADER + body.len()) as u8;
                answer[4] = kind as u8;
                answer.extend(body);
                collect(&answer, &mut Vec::new())
            };
            let code = |code: i32| end_with(&code.to_ne_bytes()).unwrap_err().raw_os_error();
            assert!(!end_with(&0_i32.to_ne_bytes()).unwrap());
            assert_eq!(code(-libc::EINVAL), Some(libc::EINVAL));
            assert_eq!(code(i32::MIN), Some(i32::MAX));
            assert!(end_with(&[]).is_err());
        }
    }

    #[test]
    fn the_kernel_answers_a_request() {
        let mut netlink = Netlink::open(libc::NETLINK_ROUTE).unwrap();
        let links = netlink
            .request(libc::RTM_GETLINK, libc::NLM_F_DUMP, &[0; 16])
            .unwrap();
        assert!(links.iter().all(|link| link.kind == libc::RTM_NEWLINK));
        assert!(!links.is_empty());
    }
}
