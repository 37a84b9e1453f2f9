//! Sending of RoCE v1 packets: Ethernet frames with a GRH and an optional VLAN tag.
//!
//! Why `unsafe` here: `sendmmsg` takes pointers.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::RawFd;
use std::time::Instant;

use libc::{iovec, mmsghdr, sockaddr_ll};

use super::interface::Interface;
use super::neighbour::Neighbours;
use super::packet::link_address;
use super::send::{ECN, Flow};
use super::socket::check;
use cairn_base::ScopedAddr;
use cairn_roce_proto::wire::Header;
use cairn_roce_proto::wire::ethernet::{ETHERTYPE_ROCE, ETHERTYPE_VLAN, Tag, Vlan};
use cairn_roce_proto::wire::grh::{self, Grh, NEXT_HEADER_BTH, gid_of};

const BATCH: usize = 64;
const HEADERS: usize = Tag::LEN + grh::LEN;

pub(crate) struct Frames {
    vlan: Option<u16>,
    scope_id: u32,
    neighbours: Option<Neighbours>,
    headers: Box<[[u8; HEADERS]; BATCH]>,
    names: Box<[sockaddr_ll; BATCH]>,
}

impl std::fmt::Debug for Frames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Frames").field(&self.neighbours).finish()
    }
}

impl Frames {
    #[must_use]
    pub(crate) fn new(vlan: Option<u16>, scope_id: u32) -> Self {
        Self {
            vlan,
            scope_id,
            neighbours: None,
            headers: Box::new([[0; HEADERS]; BATCH]),
            names: Box::new([link_address(0, [0; 6], 0); BATCH]),
        }
    }

    /// Sends up to [`BATCH`] packets, until one has an unknown MAC address. Drops that packet if
    /// none was sent. Returns the number of packets sent or dropped, and the number dropped.
    pub(crate) fn send<'a>(
        &mut self,
        fd: RawFd,
        packets: impl Iterator<Item = (&'a Flow, &'a [u8])>,
    ) -> io::Result<(usize, u64)> {
        // SAFETY: zeros (null pointers and lengths of 0) are valid values of both types.
        let (mut vectors, mut headers): ([[iovec; 2]; BATCH], [mmsghdr; BATCH]) =
            unsafe { (zeroed(), zeroed()) };
        let now = Instant::now();
        let mut count = 0;
        for (flow, packet) in packets.take(BATCH) {
            let Some(to) = self.link_to(flow, now)? else {
                break;
            };
            self.names[count] = to;
            let headers_of = write_headers(self.vlan, flow, packet.len());
            self.headers[count] = headers_of;
            let skipped = if self.vlan.is_some() { 0 } else { Tag::LEN };
            let below = &mut self.headers[count][skipped..];
            let vector = &mut vectors[count];
            vector[0].iov_base = below.as_mut_ptr().cast();
            vector[0].iov_len = below.len();
            vector[1].iov_base = packet.as_ptr().cast_mut().cast();
            vector[1].iov_len = packet.len();
            let header = &mut headers[count].msg_hdr;
            header.msg_name = (&raw mut self.names[count]).cast();
            header.msg_namelen = size_of::<sockaddr_ll>() as u32;
            header.msg_iov = vector.as_mut_ptr();
            header.msg_iovlen = vector.len();
            count += 1;
        }
        if count == 0 {
            return Ok((1, 1));
        }
        // SAFETY: each header points to live buffers of the stated lengths, which sending only
        // reads.
        let sent = unsafe {
            let flags = libc::MSG_DONTWAIT;
            libc::sendmmsg(fd, headers.as_mut_ptr(), count as u32, flags)
        };
        Ok((check(sent)? as usize, 0))
    }

    fn link_to(&mut self, flow: &Flow, now: Instant) -> io::Result<Option<sockaddr_ll>> {
        let neighbours = match &mut self.neighbours {
            Some(neighbours) => neighbours,
            none => {
                let local = ScopedAddr::new(flow.local, self.scope_id);
                none.insert(Neighbours::new(Interface::of(local)?)?)
            }
        };
        let index = neighbours.interface().index;
        let mac = neighbours.mac_of(flow.remote, now);
        let frame_type = match self.vlan {
            Some(_) => ETHERTYPE_VLAN,
            None => ETHERTYPE_ROCE,
        };
        Ok(mac.map(|mac| link_address(index, mac, frame_type)))
    }
}

fn write_headers(vlan: Option<u16>, flow: &Flow, length: usize) -> [u8; HEADERS] {
    let tag = Tag {
        vlan: Vlan {
            pcp: flow.traffic_class >> 5,
            dei: false,
            vid: vlan.unwrap_or(0),
        },
        ethertype: ETHERTYPE_ROCE,
    };
    let grh = Grh {
        traffic_class: flow.traffic_class & !ECN,
        flow_label: u32::from(flow.source_port),
        payload_len: length as u16,
        next_header: NEXT_HEADER_BTH,
        hop_limit: flow.hop_limit,
        source: gid_of(flow.local),
        destination: gid_of(flow.remote),
    };
    let mut headers = [0; HEADERS];
    grh.emit(tag.emit(&mut headers));
    headers
}
