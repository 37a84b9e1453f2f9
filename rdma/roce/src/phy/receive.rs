//! Batched receiving of packets.
//!
//! Why `unsafe` here: `recvmmsg` writes through pointers.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

use libc::{c_int, c_void, cmsghdr, iovec, mmsghdr, msghdr, sockaddr_storage};

use super::fault::BadInlet;
use super::packet::PacketSocket;
use super::socket::{Socket, check, from_storage};
use super::wire::Tap;
use super::{Inlet, Version};
use cairn_roce_proto::wire::grh::{self, Grh, address_of};
use cairn_roce_proto::wire::icrc::Route;

/// Maximum datagrams per call, each with one or more packets of a flow (GRO).
pub(crate) const BATCH: usize = 16;
const BUFFER: usize = 65_536;
/// Approximate maximum bytes per call, which fit in the CPU cache.
pub(crate) const ENOUGH: usize = 128 << 10;
const ECN_CE: u8 = 3;

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct ControlMessages([u8; 128]);

pub(crate) struct Receiver {
    bytes: Box<[u8]>,
    names: Box<[sockaddr_storage]>,
    controls: Box<[ControlMessages]>,
    infos: [Info; BATCH],
    asked: usize,
    filled: bool,
}

#[derive(Debug, Clone, Copy)]
struct Info {
    source: Option<SocketAddr>,
    local: Option<IpAddr>,
    segment: usize,
    traffic_class: u8,
    header: usize,
    length: usize,
    version: Version,
    headers: Option<Headers>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Headers {
    pub version: Version,
    /// Source address, with port 0 in RoCE v1.
    pub source: SocketAddr,
    pub local: IpAddr,
    pub traffic_class: u8,
    pub route: Route,
}

impl Headers {
    /// True if a router has set the congestion mark. Only RoCE v2 has this mark (annex A17.9).
    #[must_use]
    pub(crate) fn is_congested(&self) -> bool {
        self.version == Version::V2 && self.traffic_class & ECN_CE == ECN_CE
    }
}

impl Info {
    const UNKNOWN: Self = Self {
        source: None,
        local: None,
        segment: 0,
        traffic_class: 0,
        header: 0,
        length: 0,
        version: Version::V2,
        headers: None,
    };

    fn complete(self) -> Self {
        let addresses = self.source.zip(self.local);
        let headers = addresses.map(|(source, local)| Headers {
            version: self.version,
            source,
            local,
            traffic_class: self.traffic_class,
            route: self.version.route(source, local),
        });
        Self { headers, ..self }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Received<'a> {
    pub headers: &'a Headers,
    /// Index of the packet in its datagram, normally equal to the packet's IPv4 identification.
    pub index: u16,
    /// Bytes from the BTH to the ICRC.
    pub bytes: &'a [u8],
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Receiver")
    }
}

impl Default for Receiver {
    fn default() -> Self {
        Self::new()
    }
}

impl Receiver {
    #[must_use]
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; BATCH * BUFFER].into(),
            // SAFETY: zeros are a valid value of this plain structure.
            names: vec![unsafe { zeroed::<sockaddr_storage>() }; BATCH].into(),
            controls: vec![ControlMessages([0; 128]); BATCH].into(),
            infos: [Info::UNKNOWN; BATCH],
            asked: BATCH,
            filled: false,
        }
    }

    pub(crate) fn receive(&mut self, inlet: &Inlet) -> io::Result<usize> {
        let asked = self.asked;
        let count = match inlet {
            Inlet::Socket(socket) => self.receive_datagrams(socket)?,
            Inlet::Packets(socket) => self.receive_frames(socket)?,
            Inlet::Tap(tap) => self.receive_tap(tap),
            Inlet::Bad(bad) => self.receive_bad(bad)?,
        };
        self.filled = count == asked;
        if count > 0 {
            let bytes: usize = self.infos[..count].iter().map(|info| info.length).sum();
            let average = (bytes / count).max(1);
            self.asked = (ENOUGH / average).clamp(1, BATCH);
        }
        Ok(count)
    }

    #[must_use]
    pub(crate) fn has_more(&self) -> bool {
        self.filled
    }

    fn receive_tap(&mut self, tap: &Tap) -> usize {
        let buffers = self.bytes.chunks_exact_mut(BUFFER);
        let mut count = 0;
        for (buffer, info) in buffers.zip(&mut self.infos).take(self.asked) {
            let Some(frame) = tap.receive() else { break };
            buffer[..frame.bytes.len()].copy_from_slice(&frame.bytes);
            *info = Info {
                source: Some(frame.source),
                local: Some(frame.destination),
                segment: frame.bytes.len(),
                length: frame.bytes.len(),
                traffic_class: frame.traffic_class,
                ..Info::UNKNOWN
            }
            .complete();
            count += 1;
        }
        count
    }

    fn receive_bad(&mut self, bad: &BadInlet) -> io::Result<usize> {
        let arrived = bad.take(self.asked)?;
        let buffers = self.bytes.chunks_exact_mut(BUFFER);
        for ((buffer, info), packet) in buffers.zip(&mut self.infos).zip(&arrived) {
            buffer[..packet.bytes.len()].copy_from_slice(&packet.bytes);
            *info = Info {
                source: Some(packet.source),
                local: Some(packet.local),
                segment: packet.bytes.len(),
                length: packet.bytes.len(),
                traffic_class: packet.traffic_class,
                version: packet.version,
                ..Info::UNKNOWN
            }
            .complete();
        }
        Ok(arrived.len())
    }

    fn receive_datagrams(&mut self, socket: &Socket) -> io::Result<usize> {
        self.receive_from(socket.raw(), |header, name, bytes| {
            let mut info = read_control(header);
            info.source = from_storage(name);
            info.length = bytes.len();
            if info.segment == 0 {
                info.segment = bytes.len();
            }
            info
        })
    }

    fn receive_frames(&mut self, socket: &PacketSocket) -> io::Result<usize> {
        self.receive_from(socket.raw(), |_, _, bytes| read_grh(bytes))
    }

    fn receive_from(
        &mut self,
        fd: RawFd,
        read_headers: impl Fn(&msghdr, &sockaddr_storage, &[u8]) -> Info,
    ) -> io::Result<usize> {
        // SAFETY: zeros (null pointers and lengths of 0) are valid values of both types.
        let (mut vectors, mut headers): ([iovec; BATCH], [mmsghdr; BATCH]) =
            unsafe { (zeroed(), zeroed()) };
        let buffers = self.bytes.chunks_exact_mut(BUFFER);
        for (vector, buffer) in vectors[..self.asked].iter_mut().zip(buffers) {
            vector.iov_base = buffer.as_mut_ptr().cast();
            vector.iov_len = BUFFER;
        }
        for (index, header) in headers[..self.asked].iter_mut().enumerate() {
            let header = &mut header.msg_hdr;
            header.msg_name = (&raw mut self.names[index]).cast();
            header.msg_namelen = size_of::<sockaddr_storage>() as u32;
            header.msg_iov = &raw mut vectors[index];
            header.msg_iovlen = 1;
            header.msg_control = self.controls[index].0.as_mut_ptr().cast();
            header.msg_controllen = size_of::<ControlMessages>();
        }
        // SAFETY: each header points to live buffers of the stated lengths, which are not borrowed
        // elsewhere.
        let result = unsafe {
            libc::recvmmsg(
                fd,
                headers.as_mut_ptr(),
                self.asked as u32,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let count = match check(result) {
            Ok(count) => count as usize,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(0),
            Err(error) => return Err(error),
        };
        for (index, header) in headers[..count].iter().enumerate() {
            let bytes = &self.bytes[index * BUFFER..][..header.msg_len as usize];
            let info = read_headers(&header.msg_hdr, &self.names[index], bytes);
            self.infos[index] = info.complete();
        }
        Ok(count)
    }

    pub(crate) fn packets(&self, datagram: usize) -> impl Iterator<Item = Received<'_>> {
        let info = &self.infos[datagram];
        let bytes = &self.bytes[datagram * BUFFER + info.header..][..info.length];
        let segments = bytes.chunks(info.segment.max(1)).zip(0..);
        let headers = info.headers.as_ref();
        segments.filter_map(move |(bytes, index)| {
            Some(Received {
                headers: headers?,
                index,
                bytes,
            })
        })
    }
}

fn read_grh(bytes: &[u8]) -> Info {
    let Some((grh, packet)) = Grh::parse(bytes) else {
        return Info::UNKNOWN;
    };
    Info {
        source: Some(SocketAddr::new(address_of(grh.source), 0)),
        local: Some(address_of(grh.destination)),
        segment: packet.len(),
        length: packet.len(),
        traffic_class: grh.traffic_class,
        header: grh::LEN,
        version: Version::V1,
        headers: None,
    }
}

fn read_control(header: &msghdr) -> Info {
    let mut info = Info::UNKNOWN;
    // SAFETY: the kernel wrote control messages to the header's buffer, and the CMSG macros stay in
    // this buffer. Payloads are read unaligned, as the type of their message.
    unsafe {
        let mut message: *const cmsghdr = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            let data: *const c_void = libc::CMSG_DATA(message).cast();
            match ((*message).cmsg_level, (*message).cmsg_type) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    info.segment = data.cast::<c_int>().read_unaligned() as usize;
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let value = data.cast::<libc::in_pktinfo>().read_unaligned();
                    info.local = Some(IpAddr::from(value.ipi_addr.s_addr.to_ne_bytes()));
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let value = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    info.local = Some(IpAddr::from(value.ipi6_addr.s6_addr));
                }
                (libc::IPPROTO_IP, libc::IP_TOS) => {
                    info.traffic_class = data.cast::<u8>().read();
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    info.traffic_class = data.cast::<c_int>().read_unaligned() as u8;
                }
                _ => {}
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    info
}
