use std::collections::HashMap;
use std::ffi::CString;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use cairn_roce_proto::wire::ethernet::{Ethernet, Vlan};
use cairn_roce_proto::wire::frame::{Frame, Network};
use cairn_roce_proto::wire::icrc;
use cairn_roce_proto::wire::mad::GSI_QPN;

use crate::cable::{Cable, PCP, VID};

pub(crate) struct Sniffer(OwnedFd);

#[derive(Debug, Clone)]
pub(crate) struct Sniffed {
    ethernet: Ethernet,
    roce: Option<Roce>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Roce {
    is_v1: bool,
    /// UDP source port, or flow label of the GRH.
    flow: u32,
    dest_qpn: u32,
    is_intact: bool,
}

fn check(result: i32) -> i32 {
    assert!(result >= 0, "{}", std::io::Error::last_os_error());
    result
}

impl Sniffer {
    pub(crate) fn on(interface: &str) -> Self {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers are passed.
        let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) });
        // SAFETY: the new descriptor has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        for (level, option, value) in [
            (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 64 << 20),
            (libc::SOL_PACKET, libc::PACKET_AUXDATA, 1),
        ] {
            let value: i32 = value;
            // SAFETY: the options take an integer, and its size is given.
            check(unsafe {
                let (raw, length) = (fd.as_raw_fd(), size_of::<i32>() as u32);
                libc::setsockopt(raw, level, option, (&raw const value).cast(), length)
            });
        }
        let name = CString::new(interface).unwrap();
        // SAFETY: the name is a C string, all zeroes is a valid address, and the length is the
        // structure's size.
        check(unsafe {
            let mut address: libc::sockaddr_ll = zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = protocol;
            address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
            let length = size_of::<libc::sockaddr_ll>() as u32;
            libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length)
        });
        Self(fd)
    }

    pub(crate) fn frames(&self) -> Vec<Sniffed> {
        std::iter::from_fn(|| self.next()).collect()
    }

    fn next(&self) -> Option<Sniffed> {
        let mut bytes = vec![0_u8; 66_000];
        let mut control = [0_u64; 16];
        let mut vector = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        // SAFETY: the header points to live buffers with the given lengths. The kernel's control
        // messages are read within them, with their type.
        let (length, tag) = unsafe {
            let mut header: libc::msghdr = zeroed();
            header.msg_iov = &raw mut vector;
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = size_of_val(&control);
            let length = libc::recvmsg(self.0.as_raw_fd(), &raw mut header, 0);
            let mut tag = None;
            let mut message = libc::CMSG_FIRSTHDR(&raw const header);
            while length >= 0 && !message.is_null() {
                if (*message).cmsg_type == libc::PACKET_AUXDATA {
                    let data = libc::CMSG_DATA(message).cast::<libc::tpacket_auxdata>();
                    let data = data.read_unaligned();
                    let valid = data.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
                    tag = valid.then_some(data.tp_vlan_tci);
                }
                message = libc::CMSG_NXTHDR(&raw const header, message);
            }
            (length, tag)
        };
        bytes.truncate(usize::try_from(length).ok()?);
        Some(read(&bytes, tag))
    }
}

fn read(bytes: &[u8], tag: Option<u16>) -> Sniffed {
    let (mut ethernet, _) = Ethernet::parse(bytes).expect("a frame has a header");
    if let Some(tci) = tag {
        ethernet.vlan = Some(Vlan {
            pcp: (tci >> 13) as u8,
            dei: tci & 0x1000 != 0,
            vid: tci & 0xfff,
        });
    }
    let roce = Frame::parse(bytes).map(|frame| Roce {
        is_v1: matches!(frame.network, Network::V1(_)),
        flow: match frame.network {
            Network::V1(grh) => grh.flow_label,
            Network::V4(_, udp) | Network::V6(_, udp) => u32::from(udp.source),
        },
        dest_qpn: u32::from_be_bytes([0, frame.packet[5], frame.packet[6], frame.packet[7]]),
        is_intact: icrc::open(&frame.route(), frame.identity(), frame.packet).is_some(),
    });
    Sniffed { ethernet, roce }
}

/// Lowest bit of the endpoint's number in a queue pair number.
const ENDPOINT_SHIFT: u32 = 18;

pub(crate) fn check_frames(frames: &[Sniffed], cable: &Cable) {
    let all: Vec<_> = frames.iter().filter_map(|f| Some((f, f.roce?))).collect();
    assert!(all.len() > 100, "{} frames", all.len());
    let mut broken = 0;
    let mut flows = HashMap::new();
    for (frame, roce) in &all {
        assert_eq!(roce.is_v1, cable.roce.is_v1(), "{frame:?}");
        let vid = frame.ethernet.vlan.map(|tag| tag.vid);
        assert_eq!(vid, cable.roce.is_tagged().then_some(VID), "{frame:?}");
        if !roce.is_intact {
            broken += 1;
            continue;
        }
        let is_management = roce.dest_qpn == GSI_QPN;
        let is_prior = cable.roce.is_tagged();
        let pcp = frame.ethernet.vlan.map_or(0, |tag| tag.pcp);
        assert_eq!(pcp, if is_prior { PCP } else { 0 }, "{frame:?}");
        if !is_management {
            let flow = (frame.ethernet.source, roce.flow);
            let endpoint = roce.dest_qpn >> ENDPOINT_SHIFT;
            let leads_to = *flows.entry(flow).or_insert(endpoint);
            assert_eq!(leads_to, endpoint, "two endpoints have {flow:?}");
        }
    }
    assert!(flows.len() >= 2, "there were packets either way: {flows:?}");
    if cable.roce.is_v1() {
        assert_eq!(broken, 0, "frames of RoCE v1 are never cut");
    }
}
