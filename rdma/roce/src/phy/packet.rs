//! Packet sockets for RoCE v1: Ethernet frames of type 0x8915 with a GRH (IBTA annex A16).
//!
//! On a VLAN interface, the kernel writes and removes the 802.1Q tag. On other interfaces, the
//! kernel removes a configured tag before it selects sockets by frame type, so the socket receives
//! all types, and a filter selects RoCE.
//!
//! Why `unsafe` here: no dependency has a safe wrapper of packet sockets.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};

use libc::{c_int, sockaddr_ll, socklen_t};

use cairn_base::ScopedAddr;

use super::interface::Interface;
use super::neighbour::Mac;
use super::qpn_filter::{PASS, by_number, compare, exchange};
use super::socket::{
    NOTHING, attach, check, grow_receive_buffer, grow_send_buffer, set, set_priority, statement,
};
use cairn_roce_proto::wire::ethernet::ETHERTYPE_ROCE;
use cairn_roce_proto::wire::grh::{self, NEXT_HEADER_BTH, gid_of};

/// Offsets of frame metadata in filters (`SKF_AD_OFF` in linux/filter.h, and the next constants).
const ABOUT: u32 = -0x1000_i32 as u32;
const ABOUT_TYPE: u32 = ABOUT;
const ABOUT_KIND: u32 = ABOUT + 4;
const ABOUT_INTERFACE: u32 = ABOUT + 8;
const ABOUT_TAG: u32 = ABOUT + 44;
const ABOUT_TAG_PRESENT: u32 = ABOUT + 48;
/// `ETH_P_ALL` (linux/if_ether.h).
const ALL_TYPES: u16 = 3;
const PACKET_IGNORE_OUTGOING: c_int = 23;
const GRH_NEXT_HEADER: u32 = 6;
const GRH_DESTINATION: u32 = 24;
const DEST_QPN: u32 = grh::LEN as u32 + 4;

#[derive(Debug)]
pub(crate) struct PacketSocket {
    fd: OwnedFd,
    tests: Vec<libc::sock_filter>,
    _claim: Option<UnixDatagram>,
}

impl PacketSocket {
    /// Binds a socket that receives packets for `address` to each queue pair number `qpn` with
    /// `qpn >> qpn_low_bits == turn`. If `vlan` is set, the frames must have this VLAN tag.
    ///
    /// If `turn` is 0, also claims the address for this process.
    ///
    /// # Errors
    /// The address is not local, another process has claimed it, or the process lacks
    /// `CAP_NET_RAW`.
    pub(crate) fn bind_receiver(
        address: ScopedAddr,
        vlan: Option<u16>,
        turn: u32,
        qpn_low_bits: u32,
    ) -> io::Result<Self> {
        let interface = Interface::of(address)?;
        let address = address.ip();
        let claim = if turn == 0 {
            Some(claim(address)?)
        } else {
            None
        };
        let fd = open()?;
        let mut tests = frame_tests(&interface, vlan);
        tests.extend(packet_tests(address, turn, qpn_low_bits));
        let tests = program(tests);
        attach(fd.as_raw_fd(), libc::SO_ATTACH_FILTER, &and_pass(&tests))?;
        grow_receive_buffer(fd.as_raw_fd())?;
        grow_send_buffer(fd.as_raw_fd())?;
        let mut frame_type = ETHERTYPE_ROCE;
        if vlan.is_some() {
            frame_type = ALL_TYPES;
            let option = PACKET_IGNORE_OUTGOING;
            set(fd.as_raw_fd(), libc::SOL_PACKET, option, &1_i32)?;
        }
        let to = link_address(interface.index, [0; 6], frame_type);
        let length = size_of::<sockaddr_ll>() as socklen_t;
        // SAFETY: `to` is an address of `length` bytes.
        check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const to).cast(), length) })?;
        Ok(Self {
            fd,
            tests,
            _claim: claim,
        })
    }

    pub(crate) fn sender(traffic_class: u8) -> io::Result<Self> {
        let fd = open()?;
        attach(fd.as_raw_fd(), libc::SO_ATTACH_FILTER, &NOTHING)?;
        grow_send_buffer(fd.as_raw_fd())?;
        let this = Self {
            fd,
            tests: NOTHING.into(),
            _claim: None,
        };
        this.set_class(traffic_class)?;
        Ok(this)
    }

    pub(crate) fn admit(&self, numbers: &[u32]) -> io::Result<()> {
        let narrow = [&self.tests[..], &by_number(DEST_QPN, numbers)].concat();
        exchange(self.raw(), &narrow, &and_pass(&self.tests))
    }

    pub(crate) fn set_class(&self, traffic_class: u8) -> io::Result<()> {
        set_priority(self.raw(), traffic_class)
    }

    #[must_use]
    pub(crate) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the call passes no pointers.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: the new descriptor has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Claims an address for this process by an abstract Unix socket, whose name is unique. Without
/// the claim, packet sockets of several processes could receive for the address.
fn claim(address: IpAddr) -> io::Result<UnixDatagram> {
    let name = format!("cairn-roce-v1-{address}");
    UnixDatagram::bind_addr(&UnixAddress::from_abstract_name(name)?)
}

pub(super) fn link_address(index: u32, mac: Mac, frame_type: u16) -> sockaddr_ll {
    // SAFETY: zeros are a valid value of this plain structure.
    let mut address: sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = frame_type.to_be();
    address.sll_ifindex = index as i32;
    address.sll_halen = mac.len() as u8;
    address.sll_addr[..mac.len()].copy_from_slice(&mac);
    address
}

type Test = (Vec<libc::sock_filter>, u32);

fn load(size: u32, at: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | size | libc::BPF_ABS, at)
}

fn compute(what: u32, k: u32) -> libc::sock_filter {
    statement(libc::BPF_ALU | what | libc::BPF_K, k)
}

fn frame_tests(interface: &Interface, vlan: Option<u16>) -> Vec<Test> {
    let about = |what| vec![load(libc::BPF_W, what)];
    let mut tests = vec![
        (about(ABOUT_KIND), u32::from(libc::PACKET_HOST)),
        (about(ABOUT_INTERFACE), interface.index),
        (about(ABOUT_TYPE), u32::from(ETHERTYPE_ROCE)),
    ];
    if let Some(vid) = vlan {
        let mut tag = about(ABOUT_TAG);
        tag.push(compute(libc::BPF_AND, 0xfff));
        tests.extend([(about(ABOUT_TAG_PRESENT), 1), (tag, u32::from(vid))]);
    }
    tests
}

fn packet_tests(address: IpAddr, turn: u32, qpn_low_bits: u32) -> Vec<Test> {
    let next_header = vec![load(libc::BPF_B, GRH_NEXT_HEADER)];
    let mut tests = vec![(next_header, u32::from(NEXT_HEADER_BTH))];
    let gid = gid_of(address).octets();
    let words = gid.as_chunks::<4>().0.iter();
    tests.extend(words.zip((GRH_DESTINATION..).step_by(4)).map(|(word, at)| {
        let word = u32::from_be_bytes(*word);
        (vec![load(libc::BPF_W, at)], word)
    }));
    let owner = vec![
        load(libc::BPF_W, DEST_QPN),
        compute(libc::BPF_AND, 0x00ff_ffff),
        compute(libc::BPF_RSH, qpn_low_bits),
    ];
    tests.push((owner, turn));
    tests
}

/// Returns filter statements that drop the packet if a test fails. The caller appends the
/// statements for packets that pass.
fn program(tests: Vec<Test>) -> Vec<libc::sock_filter> {
    let mut program = Vec::new();
    for (value, wanted) in tests {
        program.extend(value);
        program.push(compare(libc::BPF_JEQ, wanted, 1, 0));
        program.extend(NOTHING);
    }
    program
}

fn and_pass(tests: &[libc::sock_filter]) -> Vec<libc::sock_filter> {
    [tests, &[PASS]].concat()
}
