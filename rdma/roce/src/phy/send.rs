//! Packets out, by batches.
//!
//! What costs is a trip through the network stack, not a byte. So neighbouring
//! packets of one flow that have one size travel as one super-packet, which the
//! stack (or the adapter) cuts up again; its last packet may be shorter. The
//! segments' IPv4 identifications then count from 0, which the ICRC covers.
//!
//! Why `unsafe` here: `sendmmsg` takes pointers. They are made afresh for each
//! call, from fields that a [`Sender`] owns.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;

use libc::{c_int, cmsghdr, iovec, mmsghdr, msghdr, sockaddr_storage, socklen_t};

use super::fault::{Fault, Verdict};
use super::frames::Frames;
use super::socket::{check, to_storage};
use super::wire::{Frame, Wire};
use super::{Network, Version};
use crate::capture::Capture;
use crate::wire::icrc::{self, Identity, Route};
use crate::wire::udp::ROCE_PORT;

/// Room for packets between two calls.
const BUFFER: usize = 256 << 10;
/// The longest packet: the largest MTU, and all headers.
pub const PACKET: usize = 4096 + 64;
/// Super-packets in a call.
const BATCH: usize = 64;
/// Packets in a super-packet (`UDP_MAX_SEGMENTS` of older kernels).
const MAX_SEGMENTS: u16 = 64;
/// Bytes in a super-packet: what fits an IP packet, for either version.
const MAX_BYTES: usize = 65_000;
/// Bytes that wait no longer once they are whole super-packets: so the receiver
/// works on them while the next are made, and they are still in the cache.
const ENOUGH: usize = 60_000;

/// The bits of a traffic class that are ECN's (RFC 3168, 5).
pub const ECN: u8 = 3;

/// Milliseconds that a flush waits at most for the adapter.
const MAX_WAITS: u32 = 5;

/// Where a connection's packets go, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// The socket, whose port is the source port; -1 on a wire in memory.
    pub fd: RawFd,
    /// Its port, or v1's flow label.
    pub source_port: u16,
    /// Our address.
    pub local: IpAddr,
    /// The peer's address.
    pub remote: IpAddr,
    /// Type of service, or traffic class.
    pub traffic_class: u8,
    /// Time to live, or hop limit.
    pub hop_limit: u8,
}

/// Neighbouring packets of one flow.
#[derive(Debug, Clone, Copy)]
struct Group {
    flow: Flow,
    start: usize,
    length: usize,
    /// Bytes of each packet but the last.
    segment: usize,
    count: u16,
    /// The last packet was shorter: nothing may follow.
    closed: bool,
    /// What the ICRC covers of its headers.
    route: Route,
}

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 128]);

/// What a sender's flows have in common.
#[derive(Debug)]
enum Exit {
    Udp,
    Frames(Frames),
    Wire(Wire),
}

/// One endpoint's packets that are about to leave.
pub struct Sender {
    buffer: Box<[u8]>,
    used: usize,
    groups: Vec<Group>,
    controls: Box<[Control; BATCH]>,
    names: Box<[sockaddr_storage; BATCH]>,
    exit: Exit,
    version: Version,
    fault: Option<Fault>,
    capture: Option<Arc<Capture>>,
    /// Packets that the system did not take.
    dropped: u64,
    /// Whether segmentation works on this path.
    offload: bool,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sender({} bytes wait)", self.used)
    }
}

impl Sender {
    /// An empty batch; `fault` damages what passes through, `capture` sees it.
    #[must_use]
    pub fn new(network: &Network, fault: Option<Fault>, capture: Option<Arc<Capture>>) -> Self {
        let exit = match network {
            Network::System => Exit::Udp,
            Network::Ethernet { vlan } => Exit::Frames(Frames::new(*vlan)),
            Network::Wire(wire) => Exit::Wire(wire.clone()),
        };
        Self {
            buffer: vec![0; BUFFER].into(),
            used: 0,
            groups: Vec::with_capacity(BATCH),
            controls: Box::new([Control([0; 128]); BATCH]),
            // SAFETY: all zeros is a value of this plain structure.
            names: Box::new([unsafe { zeroed() }; BATCH]),
            // There is none for Ethernet frames of our own.
            offload: !matches!(exit, Exit::Frames(_)),
            exit,
            version: network.version(),
            fault,
            capture,
            dropped: 0,
        }
    }

    /// Packets that the system did not take since the last call.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Room for the next packet. [`Sender::commit`] makes it one.
    pub fn packet(&mut self) -> &mut [u8] {
        if self.groups.is_empty() {
            self.used = 0;
        }
        let full = self.used + 3 * PACKET > BUFFER || self.groups.len() + 3 > BATCH;
        if full {
            self.flush();
        }
        &mut self.buffer[self.used..self.used + PACKET]
    }

    /// Seals the first `length` bytes of [`Sender::packet`] and queues them.
    pub fn commit(&mut self, flow: &Flow, length: usize) {
        let verdict = self.fault.as_mut().map_or(Verdict::Pass, Fault::judge);
        match verdict {
            Verdict::Pass => self.queue(flow, length),
            Verdict::Drop => {}
            Verdict::Duplicate => {
                let start = self.used;
                self.queue(flow, length);
                self.buffer.copy_within(start..start + length, self.used);
                self.queue(flow, length);
            }
            Verdict::Corrupt { bit } => {
                let start = self.used;
                self.queue(flow, length);
                let bit = start * 8 + bit as usize % (length * 8);
                self.buffer[bit / 8] ^= 1 << (bit % 8);
            }
            Verdict::Hold => {
                let packet = &self.buffer[self.used..self.used + length];
                let fault = self.fault.as_mut().expect("only a fault says so");
                fault.hold(flow, packet);
                return;
            }
        }
        // What was held back leaves behind its successor.
        if let Some((flow, length)) = self.release() {
            self.queue(&flow, length);
        }
    }

    fn release(&mut self) -> Option<(Flow, usize)> {
        let held = self
            .fault
            .as_mut()?
            .release(&mut self.buffer[self.used..])?;
        Some(held)
    }

    fn queue(&mut self, flow: &Flow, length: usize) {
        let sealed = length + icrc_len();
        let last = self.groups.last_mut().filter(|group| {
            self.offload
                && group.flow == *flow
                && !group.closed
                && sealed <= group.segment
                && group.count < MAX_SEGMENTS
                && group.length + sealed <= MAX_BYTES
        });
        let index = match last {
            Some(group) => {
                group.closed = sealed < group.segment;
                group.length += sealed;
                group.count += 1;
                group.count - 1
            }
            None => {
                if self.used - self.groups.first().map_or(self.used, |group| group.start) >= ENOUGH
                {
                    self.leave();
                }
                let source = SocketAddr::new(flow.local, flow.source_port);
                self.groups.push(Group {
                    flow: *flow,
                    start: self.used,
                    length: sealed,
                    segment: sealed,
                    count: 1,
                    closed: false,
                    route: self.version.route(source, flow.remote),
                });
                0
            }
        };
        let packet = &mut self.buffer[self.used..];
        let route = &self.groups[self.groups.len() - 1].route;
        icrc::seal(route, Identity::of_segment(index), packet, length);
        self.used += sealed;
    }

    /// Whether anything waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Sends everything. What the system does not take is lost, as on any wire.
    pub fn flush(&mut self) {
        self.leave();
        self.used = 0;
    }

    fn leave(&mut self) {
        self.capture();
        if let Exit::Wire(wire) = &self.exit {
            self.put_on(wire);
        } else {
            self.send_all();
        }
        self.groups.clear();
    }

    fn put_on(&self, wire: &Wire) {
        for (group, index, packet) in self.packets() {
            wire.send(Frame {
                source: SocketAddr::new(group.flow.local, group.flow.source_port),
                destination: group.flow.remote,
                traffic_class: group.flow.traffic_class,
                id: index,
                bytes: packet.to_vec(),
            });
        }
    }

    fn send_all(&mut self) {
        let mut from = 0;
        while from < self.groups.len() {
            let fd = self.groups[from].flow.fd;
            let same = self.groups[from..]
                .iter()
                .take_while(|group| group.flow.fd == fd);
            let to = from + same.count();
            self.send(fd, from, to);
            from = to;
        }
    }

    /// What waits, packet by packet, each with its place in its super-packet.
    fn packets(&self) -> impl Iterator<Item = (&Group, u16, &[u8])> {
        self.groups.iter().flat_map(|group| {
            let bytes = &self.buffer[group.start..group.start + group.length];
            let packets = bytes.chunks(group.segment).zip(0..);
            packets.map(move |(packet, index)| (group, index, packet))
        })
    }

    fn capture(&self) {
        let Some(capture) = &self.capture else { return };
        for (group, index, packet) in self.packets() {
            capture.sent(self.version, &group.flow, index, packet);
        }
        capture.flush();
    }

    fn send(&mut self, fd: RawFd, mut from: usize, to: usize) {
        let mut patience = MAX_WAITS;
        while from < to {
            match self.send_some(fd, from, to) {
                Ok(count) => from += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && patience > 0 => {
                    patience -= 1;
                    wait_writable(fd);
                }
                Err(error) => {
                    let group = &self.groups[from];
                    // Of a path without checksum offload, for one (udp(7)): from
                    // now on packet by packet.
                    let refused = matches!(
                        error.raw_os_error(),
                        Some(libc::EIO | libc::EINVAL | libc::EOPNOTSUPP)
                    );
                    if refused && group.count > 1 {
                        self.offload = false;
                    }
                    self.dropped += u64::from(group.count);
                    from += 1;
                }
            }
        }
    }

    fn send_some(&mut self, fd: RawFd, from: usize, to: usize) -> io::Result<usize> {
        let Exit::Frames(frames) = &mut self.exit else {
            return self.send_datagrams(fd, from, to);
        };
        let packets = self.groups[from..to].iter().map(|group| {
            let bytes = &self.buffer[group.start..group.start + group.length];
            (&group.flow, bytes)
        });
        let (settled, lost) = frames.send(fd, packets)?;
        self.dropped += lost;
        Ok(settled)
    }

    fn send_datagrams(&mut self, fd: RawFd, from: usize, to: usize) -> io::Result<usize> {
        // SAFETY: all zeros (null pointers and lengths of 0) is a value of both.
        let (mut vectors, mut headers): ([iovec; BATCH], [mmsghdr; BATCH]) =
            unsafe { (zeroed(), zeroed()) };
        for (index, group) in self.groups[from..to].iter().enumerate() {
            vectors[index].iov_base = self.buffer[group.start..].as_mut_ptr().cast();
            vectors[index].iov_len = group.length;
            let remote = SocketAddr::new(group.flow.remote, ROCE_PORT);
            let (name, length) = to_storage(remote);
            self.names[index] = name;
            let header = &mut headers[index].msg_hdr;
            header.msg_name = (&raw mut self.names[index]).cast();
            header.msg_namelen = length;
            header.msg_iov = &raw mut vectors[index];
            header.msg_iovlen = 1;
            write_control(group, header, &mut self.controls[index]);
        }
        // SAFETY: each header points at live buffers of the lengths it says.
        let sent = unsafe {
            let count = (to - from) as u32;
            libc::sendmmsg(fd, headers.as_mut_ptr(), count, libc::MSG_DONTWAIT)
        };
        Ok(check(sent)? as usize)
    }
}

/// Waits a moment for the adapter to take more: that is what slows a sender down
/// to the speed of its link.
fn wait_writable(fd: RawFd) {
    let mut polled = libc::pollfd {
        fd,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one live structure, and that number.
    unsafe { libc::poll(&raw mut polled, 1, 1) };
}

const fn icrc_len() -> usize {
    crate::wire::packet::ICRC_LEN
}

/// The control messages of a group: source address, class, hop limit, and how to
/// cut it up.
fn write_control(group: &Group, header: &mut msghdr, control: &mut Control) {
    let flow = &group.flow;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = size_of::<Control>();
    let mut writer = ControlWriter { header, used: 0 };
    let class = c_int::from(flow.traffic_class);
    let hops = c_int::from(flow.hop_limit);
    match flow.local {
        IpAddr::V4(local) => {
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr {
                    s_addr: u32::from_ne_bytes(local.octets()),
                },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            writer.put(libc::IPPROTO_IP, libc::IP_PKTINFO, info);
            writer.put(libc::IPPROTO_IP, libc::IP_TOS, class);
            writer.put(libc::IPPROTO_IP, libc::IP_TTL, hops);
        }
        IpAddr::V6(local) => {
            let info = libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr {
                    s6_addr: local.octets(),
                },
                ipi6_ifindex: 0,
            };
            writer.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
            writer.put(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, class);
            writer.put(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, hops);
        }
    }
    if group.count > 1 {
        writer.put(libc::SOL_UDP, libc::UDP_SEGMENT, group.segment as u16);
    }
    let used = writer.used;
    header.msg_controllen = used;
}

struct ControlWriter<'a> {
    header: &'a mut msghdr,
    used: usize,
}

impl ControlWriter<'_> {
    fn put<T>(&mut self, level: c_int, kind: c_int, value: T) {
        // SAFETY: pure arithmetic.
        let (space, length) = unsafe {
            let size = size_of::<T>() as socklen_t;
            (
                libc::CMSG_SPACE(size) as usize,
                libc::CMSG_LEN(size) as usize,
            )
        };
        assert!(
            self.used + space <= size_of::<Control>(),
            "there is room for all four"
        );
        // SAFETY: the message lies within the control buffer, by the line above,
        // and begins at a multiple of the alignment that it needs.
        unsafe {
            let message: *mut cmsghdr = self.header.msg_control.byte_add(self.used).cast();
            (*message).cmsg_level = level;
            (*message).cmsg_type = kind;
            (*message).cmsg_len = length;
            libc::CMSG_DATA(message).cast::<T>().write_unaligned(value);
        }
        self.used += space;
    }
}
