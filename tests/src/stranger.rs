//! Peer that sends arbitrary RoCE datagrams, without queue pairs.

use std::mem::zeroed;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use cairn_base::entropy::Entropy;
use cairn_rdma::{Marked, PKey};
use cairn_roce_proto::cm::{CmEvent, ConnId, Connect, Identity, Manager, Path, QpTerms};
use cairn_roce_proto::time::Instant as ProtoInstant;
use cairn_roce_proto::wire::icrc::{self, Checker, Identity as Ip, Route};
use cairn_roce_proto::wire::mad::{GSI_QKEY, GSI_QPN, MAD_LEN};
use cairn_roce_proto::wire::udp::ROCE_PORT;
use cairn_roce_proto::wire::{Deth, Opcode, Packet, Syndrome};
use nvme_proto::wire::IntoBytes;
use nvme_proto::wire::cm::RequestData;

const PATIENCE: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_millis(100);

/// Value of `IP_MTU_DISCOVER` with which Linux sends unfragmented packets with IP identification 0.
const PROBE: i32 = libc::IP_PMTUDISC_DO;

#[derive(Debug, Clone, Copy)]
pub struct Heard {
    pub opcode: Opcode,
    pub qpn: u32,
    pub psn: u32,
    pub syndrome: Option<Syndrome>,
    pub tos: u8,
}

#[derive(Debug)]
pub struct Stranger {
    socket: UdpSocket,
    outgoing: Option<UdpSocket>,
    path: Path,
    manager: Manager,
    checker: Checker,
    psn: u32,
    start: Instant,
}

impl Stranger {
    /// Opens a socket at a loopback address; port 0 selects a free port.
    #[must_use]
    pub fn at(local: Ipv4Addr, port: u16, remote: IpAddr) -> Self {
        let socket = UdpSocket::bind((local, port)).unwrap();
        set(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, PROBE);
        set(&socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            socket,
            outgoing: None,
            path: Path {
                local: local.into(),
                remote,
            },
            manager: Manager::new(Identity::new(
                Entropy::seeded(local.to_bits().into()).to_draw(),
            )),
            checker: Checker::new(),
            psn: 0,
            start: Instant::now(),
        }
    }

    /// Changes the source port of sent packets, not the receiving socket.
    pub fn send_from(&mut self, port: u16) {
        let socket = UdpSocket::bind((self.path.local, port)).unwrap();
        set(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, PROBE);
        self.outgoing = Some(socket);
    }

    pub fn mark(&self, tos: u8) {
        set(self.sender(), libc::IPPROTO_IP, libc::IP_TOS, tos.into());
    }

    fn sender(&self) -> &UdpSocket {
        self.outgoing.as_ref().unwrap_or(&self.socket)
    }

    fn route(&self) -> Route {
        Route::Udp {
            source: self.path.local,
            destination: self.path.remote,
            source_port: self.sender().local_addr().unwrap().port(),
        }
    }

    /// Sends packets of equal length in one buffer, which arrives as one buffer, as with GRO.
    pub fn send_joined(&self, packets: &[Packet<'_>]) {
        let mut bytes = Vec::new();
        for (packet, index) in packets.iter().zip(0..) {
            let mut room = [0; 512];
            let length = packet.emit(&mut room);
            let id = Ip::of_segment(index);
            let length = icrc::seal(&self.route(), id, &mut room, length);
            bytes.extend_from_slice(&room[..length]);
        }
        let length = (bytes.len() / packets.len()) as i32;
        set(self.sender(), libc::SOL_UDP, libc::UDP_SEGMENT, length);
        let to = (self.path.remote, ROCE_PORT);
        assert_eq!(self.sender().send_to(&bytes, to).unwrap(), bytes.len());
        set(self.sender(), libc::SOL_UDP, libc::UDP_SEGMENT, 0);
    }

    pub fn hear(&mut self, wait: Duration) -> Option<Heard> {
        let deadline = Instant::now() + wait;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = left.max(Duration::from_millis(1));
            self.socket.set_read_timeout(Some(left)).unwrap();
            let mut bytes = [0; 4096];
            let received = receive_with_tos(&self.socket, &mut bytes);
            self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
            let (length, source_port, tos) = received?;
            let route = Route::Udp {
                source: self.path.remote,
                destination: self.path.local,
                source_port,
            };
            let opened = self.checker.open(&route, 0, &bytes[..length]);
            let packet = Packet::parse(opened.expect("its ICRC is right")).unwrap();
            if packet.bth.dest_qpn != GSI_QPN {
                return Some(Heard {
                    opcode: packet.opcode,
                    qpn: packet.bth.dest_qpn,
                    psn: packet.bth.psn,
                    syndrome: packet.syndrome(),
                    tos,
                });
            }
        }
    }

    /// Prepares a connection request (REQ) for an admin queue.
    pub fn ask(&mut self, qpn: u32) -> ConnId {
        self.ask_with(qpn, &RequestData::new(0, 32, 31, 0))
    }

    pub fn ask_with(&mut self, qpn: u32, data: &RequestData) -> ConnId {
        let mut private_data = [0; 56];
        private_data[..32].copy_from_slice(data.as_bytes());
        let wish = Connect {
            path: self.path,
            local_port: 50_000,
            remote_port: 4420,
            terms: QpTerms {
                qpn,
                starting_psn: 1,
                responder_resources: 16,
                initiator_depth: 16,
                rnr_retry_count: 7,
                long_send: None,
            },
            retry_count: 7,
            path_mtu: 3,
            ack_timeout: 14,
            pkey: PKey::DEFAULT,
            marked: Marked {
                traffic_class: 0,
                hop_limit: 64,
            },
            private_data,
            timeout: PATIENCE,
        };
        let id = self.manager.connect(self.now(), &wish);
        self.say();
        id
    }

    fn now(&self) -> ProtoInstant {
        ProtoInstant::after(self.start.elapsed())
    }

    /// Sends the prepared management datagrams.
    pub fn say(&mut self) {
        while let Some(message) = self.manager.poll_transmit() {
            self.send_mad(&message.mad, |_| {});
        }
    }

    /// Returns a connection's DREQ datagram without sending it.
    pub fn goodbye(&mut self, id: ConnId) -> [u8; MAD_LEN] {
        self.manager.disconnect(self.now(), id);
        let message = self.manager.poll_transmit();
        message
            .expect("an established connection ends by a DREQ")
            .mad
    }

    pub fn say_nothing(&mut self) {
        while self.manager.poll_transmit().is_some() {}
    }

    /// Sends a management datagram to QP1 after `change` modified the packet.
    pub fn send_mad(&mut self, mad: &[u8], change: impl Fn(&mut Packet<'_>)) {
        self.psn += 1;
        let mut packet = Packet::new(Opcode::UdSendOnly, GSI_QPN, self.psn);
        packet.deth = Some(Deth {
            qkey: GSI_QKEY,
            source_qpn: GSI_QPN,
        });
        packet.payload = mad;
        change(&mut packet);
        self.send(&packet);
    }

    pub fn send(&self, packet: &Packet<'_>) {
        let mut bytes = [0; 512];
        let length = packet.emit(&mut bytes);
        let length = icrc::seal(&self.route(), Ip::of_segment(0), &mut bytes, length);
        let to = (self.path.remote, ROCE_PORT);
        self.sender().send_to(&bytes[..length], to).unwrap();
    }

    pub fn receive_soon(&mut self) -> Option<CmEvent> {
        self.socket.set_read_timeout(Some(SOON)).unwrap();
        let mut bytes = [0; 1];
        let came = self.socket.peek(&mut bytes).is_ok();
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        came.then(|| self.receive())
    }

    /// Waits for a response, and prepares the required reply, which [`Self::say`] sends and
    /// [`Self::say_nothing`] drops.
    pub fn receive(&mut self) -> CmEvent {
        loop {
            if let Some(event) = self.manager.poll_event() {
                return event;
            }
            let mut bytes = [0; 4096];
            let (length, from) = self.socket.recv_from(&mut bytes).unwrap();
            assert_eq!(from.ip(), self.path.remote);
            let route = Route::Udp {
                source: from.ip(),
                destination: self.path.local,
                source_port: from.port(),
            };
            let opened = self.checker.open(&route, 0, &bytes[..length]);
            let packet = Packet::parse(opened.expect("its ICRC is right")).unwrap();
            let now = self.now();
            self.manager.handle_mad(now, self.path, 0, packet.payload);
        }
    }
}

fn set(socket: &UdpSocket, level: i32, option: i32, value: i32) {
    // SAFETY: these options take an integer, and its size is given.
    let set = unsafe {
        let (value, length) = ((&raw const value).cast(), size_of::<i32>() as u32);
        libc::setsockopt(socket.as_raw_fd(), level, option, value, length)
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

fn receive_with_tos(socket: &UdpSocket, bytes: &mut [u8]) -> Option<(usize, u16, u8)> {
    let mut control = [0_u64; 16];
    // SAFETY: all zeroes is a valid value of these plain structures.
    let (mut name, mut header): (libc::sockaddr_in, libc::msghdr) = unsafe { (zeroed(), zeroed()) };
    let mut vector = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    header.msg_name = (&raw mut name).cast();
    header.msg_namelen = size_of_val(&name) as u32;
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control);
    // SAFETY: the header points to live buffers with the given lengths.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) };
    let length = usize::try_from(length).ok()?;
    // SAFETY: the kernel filled in control messages within the buffer, and the macros stay within
    // it; the type of service is a byte.
    let tos = unsafe {
        let message = libc::CMSG_FIRSTHDR(&raw const header);
        assert!(!message.is_null() && (*message).cmsg_type == libc::IP_TOS);
        libc::CMSG_DATA(message).read()
    };
    Some((length, u16::from_be(name.sin_port), tos))
}
