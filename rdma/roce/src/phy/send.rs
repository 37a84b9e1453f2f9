//! Batched sending of packets ([`super::batch`]).
//!
//! Why `unsafe` here: `sendmmsg` takes pointers.

use cairn_base::ScopedAddr;
use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;

use libc::{c_int, cmsghdr, iovec, mmsghdr, msghdr, sockaddr_storage, socklen_t};

use super::batch::{Batch, BatchPosition, GROUPS, Group, PIECES, Sharing};
use super::capture::Capture;
use super::frames::Frames;
use super::offload::Offload;
use super::socket::{check, to_storage};
use super::wire::{Frame, Wire};
use super::{Network, Version};
use cairn_roce_proto::counters::Counters;
use cairn_roce_proto::qp::Joined;
use cairn_roce_proto::wire::udp::ROCE_PORT;

/// ECN bits of the traffic class (RFC 3168, 5).
pub(crate) const ECN: u8 = 3;

const MAX_WAITS: u32 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flow {
    /// Descriptor of the sending socket, or -1 for a network in memory.
    pub fd: RawFd,
    /// UDP source port in RoCE v2, or flow label in RoCE v1.
    pub source_port: u16,
    pub local: IpAddr,
    pub remote: IpAddr,
    pub traffic_class: u8,
    /// True if the socket has this traffic class. Otherwise, each message carries the class.
    pub is_of_class: bool,
    pub hop_limit: u8,
}

impl Flow {
    /// Returns the flow without ECN. The socket's traffic class still has the ECN bits, so each
    /// message carries its class.
    #[must_use]
    pub(crate) fn not_ecn_capable(&self) -> Self {
        Self {
            traffic_class: self.traffic_class & !ECN,
            is_of_class: false,
            ..*self
        }
    }
}

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct ControlMessages([u8; 128]);

#[derive(Debug)]
enum Exit {
    Udp,
    Frames(Frames),
    Wire(Wire),
}

#[derive(Debug, Default)]
struct Tally {
    calls: u64,
    datagrams: u64,
    dropped: u64,
    unjoined: u64,
}

pub(crate) struct Sender {
    batch: Batch,
    controls: Box<[ControlMessages; GROUPS]>,
    names: Box<[sockaddr_storage; GROUPS]>,
    exit: Exit,
    version: Version,
    capture: Option<Arc<Capture>>,
    tally: Tally,
    offload: Offload,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Sender({} super-packets wait)",
            self.batch.groups().len()
        )
    }
}

impl Sender {
    #[must_use]
    pub(crate) fn new(
        network: &Network,
        local: ScopedAddr,
        capture: Option<Arc<Capture>>,
        offload: bool,
    ) -> Self {
        let exit = match network.good() {
            Network::System => Exit::Udp,
            Network::Ethernet { vlan } => Exit::Frames(Frames::new(*vlan, local.scope_id())),
            Network::Wire(wire) => Exit::Wire(wire.clone()),
            Network::Bad(..) => unreachable!("below the faults is no other bad network"),
        };
        Self {
            batch: Batch::new(),
            controls: Box::new([ControlMessages([0; 128]); GROUPS]),
            // SAFETY: zeros are a valid value of this plain structure.
            names: Box::new([unsafe { zeroed() }; GROUPS]),
            offload: Offload::new(offload && !matches!(exit, Exit::Frames(_))),
            exit,
            version: network.version(),
            capture,
            tally: Tally::default(),
        }
    }

    pub(crate) fn report(&mut self, counters: &mut Counters) {
        let Tally {
            calls,
            datagrams,
            dropped,
            unjoined,
        } = std::mem::take(&mut self.tally);
        counters.send_calls += calls;
        counters.sent_datagrams += datagrams;
        counters.send_err += dropped;
        counters.send_offload_err += unjoined;
    }

    pub(crate) fn packet(&mut self) -> &mut [u8] {
        self.batch.rewind();
        if self.batch.is_full() {
            self.flush();
        }
        self.batch.room()
    }

    #[must_use]
    pub(crate) fn opcode(&self) -> u8 {
        self.batch.opcode()
    }

    pub(crate) fn judge(&mut self, remote: IpAddr, fate: Joined) {
        self.tally.unjoined += u64::from(self.offload.judge(remote, fate));
    }

    pub(crate) fn commit(
        &mut self,
        flow: &Flow,
        length: usize,
        place: &mut BatchPosition,
        sharing: Sharing,
    ) -> bool {
        let joins = self.offload.is_for(flow.remote).then_some(sharing);
        if self.batch.is_due(flow, length, place, joins) {
            self.leave();
        }
        self.batch.add(flow, self.version, length, place, joins)
    }

    /// Returns [`Batch::train_room`] if packets to `remote` may share super-packets.
    pub(crate) fn train_room(
        &mut self,
        remote: IpAddr,
        place: &BatchPosition,
        limit: usize,
    ) -> Option<(&mut [u8], usize)> {
        let joins = self.offload.is_for(remote);
        self.batch.train_room(place, limit).filter(|_| joins)
    }

    pub(crate) fn commit_train(&mut self, count: usize, place: &BatchPosition) {
        self.batch.add_train(count, place);
    }

    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    pub(crate) fn flush(&mut self) {
        self.leave();
        self.batch.rewind();
    }

    fn leave(&mut self) {
        self.capture();
        if let Exit::Wire(wire) = &self.exit {
            self.put_on(wire);
            self.tally.datagrams += self.batch.groups().len() as u64;
        } else {
            self.send_all();
        }
        self.batch.clear();
    }

    fn put_on(&self, wire: &Wire) {
        for (group, index, packet) in self.batch.packets() {
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
        while let Some(group) = self.batch.groups().get(from) {
            let fd = group.flow.fd;
            let same = self.batch.groups()[from..]
                .iter()
                .take_while(|group| group.flow.fd == fd);
            let to = from + same.count();
            self.send(fd, from, to);
            from = to;
        }
    }

    fn capture(&self) {
        let Some(capture) = &self.capture else { return };
        for (group, index, packet) in self.batch.packets() {
            capture.sent(self.version, &group.flow, index, packet);
        }
        capture.flush();
    }

    fn send(&mut self, fd: RawFd, mut from: usize, to: usize) {
        let mut patience = MAX_WAITS;
        while from < to {
            self.tally.calls += 1;
            match self.send_some(fd, from, to) {
                Ok(count) => {
                    from += count;
                    self.tally.datagrams += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && patience > 0 => {
                    patience -= 1;
                    wait_writable(fd);
                }
                Err(error) => {
                    let group = &self.batch.groups()[from];
                    // The system refuses super-packets on some paths, such as those without
                    // checksum offload (udp(7)).
                    let refused = matches!(
                        error.raw_os_error(),
                        Some(libc::EIO | libc::EINVAL | libc::EOPNOTSUPP)
                    );
                    if refused && group.count > 1 {
                        let is_new = self.offload.refuse(group.flow.remote);
                        self.tally.unjoined += u64::from(is_new);
                    }
                    self.tally.dropped += u64::from(group.count);
                    from += 1;
                }
            }
        }
    }

    fn send_some(&mut self, fd: RawFd, from: usize, to: usize) -> io::Result<usize> {
        let Exit::Frames(frames) = &mut self.exit else {
            return self.send_datagrams(fd, from, to);
        };
        let batch = &self.batch;
        let packets = batch.groups()[from..to]
            .iter()
            .flat_map(|group| batch.pieces(group).map(|packet| (&group.flow, packet)));
        let (settled, lost) = frames.send(fd, packets)?;
        self.tally.dropped += lost;
        Ok(settled)
    }

    fn send_datagrams(&mut self, fd: RawFd, from: usize, to: usize) -> io::Result<usize> {
        let mut vectors = [const { MaybeUninit::<iovec>::uninit() }; PIECES];
        let mut headers = [const { MaybeUninit::<mmsghdr>::uninit() }; GROUPS];
        let mut pieces = 0;
        for (index, group) in self.batch.groups()[from..to].iter().enumerate() {
            let first = pieces;
            for piece in self.batch.pieces(group) {
                vectors[pieces].write(iovec {
                    iov_base: piece.as_ptr().cast_mut().cast(),
                    iov_len: piece.len(),
                });
                pieces += 1;
            }
            let remote = SocketAddr::new(group.flow.remote, ROCE_PORT);
            let (name, length) = to_storage(remote);
            self.names[index] = name;
            // SAFETY: zeros (null pointers and lengths of 0) are a valid value of the type.
            let mut header: msghdr = unsafe { zeroed() };
            header.msg_name = (&raw mut self.names[index]).cast();
            header.msg_namelen = length;
            header.msg_iov = (&raw mut vectors[first]).cast();
            header.msg_iovlen = pieces - first;
            write_control(group, &mut header, &mut self.controls[index]);
            headers[index].write(mmsghdr {
                msg_hdr: header,
                msg_len: 0,
            });
        }
        // SAFETY: the first `to - from` headers were written, and each points to live buffers and
        // written vectors of the stated lengths. The system only reads the buffers.
        let sent = unsafe {
            let count = (to - from) as u32;
            libc::sendmmsg(fd, headers.as_mut_ptr().cast(), count, libc::MSG_DONTWAIT)
        };
        Ok(check(sent)? as usize)
    }
}

fn wait_writable(fd: RawFd) {
    let mut polled = libc::pollfd {
        fd,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: `polled` is a live structure, and the count is one.
    unsafe { libc::poll(&raw mut polled, 1, 1) };
}

fn write_control(group: &Group, header: &mut msghdr, control: &mut ControlMessages) {
    let flow = &group.flow;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = size_of::<ControlMessages>();
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
            if !flow.is_of_class {
                writer.put(libc::IPPROTO_IP, libc::IP_TOS, class);
            }
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
            if !flow.is_of_class {
                writer.put(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, class);
            }
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
        // SAFETY: the macros only compute.
        let (space, length) = unsafe {
            let size = size_of::<T>() as socklen_t;
            (
                libc::CMSG_SPACE(size) as usize,
                libc::CMSG_LEN(size) as usize,
            )
        };
        assert!(
            self.used + space <= size_of::<ControlMessages>(),
            "there is room for all four"
        );
        // SAFETY: the message is inside the control buffer, by the assertion above, and its start
        // is aligned.
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
