//! Packet sockets, for RoCE v1: Ethernet frames of type 0x8915 that begin with
//! a GRH (IBTA annex A16).
//!
//! A socket is bound to the interface that has the address. The kernel writes
//! and strips the Ethernet header, and, where that interface is a VLAN's, the
//! 802.1Q tag: its VID is the VLAN's, its PCP what the VLAN's `egress-qos-map`
//! makes of the socket's priority. So an address on a VLAN's interface
//! chooses the VLAN, as for the kernel's own RoCE, without code here.
//!
//! On an interface that is no VLAN interface a tag can be configured: with VID 0, which carries
//! only the priority (802.1Q, 9.6), or with another VID, where the kernel
//! has no VLANs. It is written in front of the GRH. On receipt the kernel takes
//! tags off before it looks for sockets of this frame type, and forgets them; so
//! such a socket takes all types, and has its filter choose.
//!
//! Why `unsafe` here: packet sockets have no safe wrapper in the crates we use.
//! Each call passes pointers to live values of the type that it takes.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};

use libc::{c_int, sockaddr_ll, socklen_t};

use super::interface::Interface;
use super::neighbour::Mac;
use super::sieve::{PASS, by_number, compare, exchange};
use super::socket::{
    NOTHING, attach, check, grow_receive_buffer, grow_send_buffer, set, set_priority, statement,
};
use cairn_roce_proto::wire::ethernet::ETHERTYPE_ROCE;
use cairn_roce_proto::wire::grh::{self, NEXT_HEADER_BTH, gid_of};

/// Offsets of what a filter can ask the kernel about a frame (linux/filter.h:
/// SKF_AD_OFF, and _PROTOCOL, _PKTTYPE, _IFINDEX, _VLAN_TAG, _VLAN_TAG_PRESENT).
const ABOUT: u32 = -0x1000_i32 as u32;
const ABOUT_TYPE: u32 = ABOUT;
const ABOUT_KIND: u32 = ABOUT + 4;
const ABOUT_INTERFACE: u32 = ABOUT + 8;
const ABOUT_TAG: u32 = ABOUT + 44;
const ABOUT_TAG_PRESENT: u32 = ABOUT + 48;
/// Frames of all types (linux/if_ether.h: ETH_P_ALL).
const ALL_TYPES: u16 = 3;
/// Not those that this machine sends (linux/if_packet.h).
const PACKET_IGNORE_OUTGOING: c_int = 23;
/// Where the GRH has its next header and its destination GID.
const GRH_NEXT_HEADER: u32 = 6;
const GRH_DESTINATION: u32 = 24;
/// Where a packet has the word that ends in the destination queue pair number.
const DEST_QPN: u32 = grh::LEN as u32 + 4;

/// A packet socket of one interface.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    /// What its filter asks of a packet before it asks for whom it is.
    tests: Vec<libc::sock_filter>,
    /// Keeps the address ours, on a device's first socket.
    _claim: Option<UnixDatagram>,
}

impl PacketSocket {
    /// Binds a socket that receives what is meant for `address`, bears a tag with
    /// this VID if one is given, and is for queue pairs whose numbers begin with
    /// `turn`, in all but the `qpn_low_bits` low bits. The first, of turn 0, claims
    /// the address.
    ///
    /// # Errors
    /// The address is not ours, another process has claimed it, or the process
    /// lacks `CAP_NET_RAW`.
    pub fn bind_receiver(
        address: IpAddr,
        vlan: Option<u16>,
        turn: u32,
        qpn_low_bits: u32,
    ) -> io::Result<Self> {
        let interface = Interface::of(address)?;
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
        // It sends, too: connection management has one socket for both.
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

    /// A socket that only sends, with the priority of this traffic class: what qdiscs
    /// and a VLAN's `egress-qos-map` go by.
    ///
    /// # Errors
    /// The process lacks `CAP_NET_RAW`.
    pub fn sender(traffic_class: u8) -> io::Result<Self> {
        // Without a protocol it receives nothing.
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

    /// Lets packets for these queue pairs pass alone, of those that it received before. The numbers
    /// are in order.
    ///
    /// # Errors
    /// The system refuses.
    pub fn admit(&self, numbers: &[u32]) -> io::Result<()> {
        let narrow = [&self.tests[..], &by_number(DEST_QPN, numbers)].concat();
        exchange(self.raw(), &narrow, &and_pass(&self.tests))
    }

    /// Gives what it sends the priority of this traffic class. The class itself
    /// stands in the GRH.
    ///
    /// # Errors
    /// The system refuses.
    pub fn set_class(&self, traffic_class: u8) -> io::Result<()> {
        set_priority(self.raw(), traffic_class)
    }

    /// The descriptor.
    #[must_use]
    pub fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// A socket that is not bound yet, and receives nothing.
fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers are passed.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: a descriptor that was just made has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Packet sockets share frames. What must not be shared is claimed by a name in
/// the network namespace's list of abstract Unix sockets.
fn claim(address: IpAddr) -> io::Result<UnixDatagram> {
    let name = format!("cairn-roce-v1-{address}");
    UnixDatagram::bind_addr(&UnixAddress::from_abstract_name(name)?)
}

/// Where frames go: to this MAC address, by this interface, and of what type.
pub(super) fn link_address(index: u32, mac: Mac, frame_type: u16) -> sockaddr_ll {
    // SAFETY: all zeros is a value of this plain structure.
    let mut address: sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = frame_type.to_be();
    address.sll_ifindex = index as i32;
    address.sll_halen = mac.len() as u8;
    address.sll_addr[..mac.len()].copy_from_slice(&mac);
    address
}

/// What a filter computes, and what must come out.
type Test = (Vec<libc::sock_filter>, u32);

fn load(size: u32, at: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | size | libc::BPF_ABS, at)
}

fn compute(what: u32, k: u32) -> libc::sock_filter {
    statement(libc::BPF_ALU | what | libc::BPF_K, k)
}

/// The frame is for this machine and came by this interface: not by one of its
/// VLANs, whose frames it sees too. Its tag, if there must be one, has this VID.
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

/// The packet is for this address and one of these queue pairs.
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

/// The beginning of a filter that lets pass what passes all tests.
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
