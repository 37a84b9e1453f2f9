//! A stranger: a UDP socket, and datagrams of RoCE as it likes them.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use cairn_rdma::entropy::Entropy;
use cairn_rdma::{Marked, PKey};
use cairn_roce_proto::cm::{CmEvent, ConnId, Connect, Identity, Manager, Path, QpTerms};
use cairn_roce_proto::time::Instant as ProtoInstant;
use cairn_roce_proto::wire::icrc::{self, Checker, Identity as Ip, Route};
use cairn_roce_proto::wire::mad::{GSI_QKEY, GSI_QPN};
use cairn_roce_proto::wire::udp::ROCE_PORT;
use cairn_roce_proto::wire::{Deth, Opcode, Packet};
use nvme_proto::wire::IntoBytes;
use nvme_proto::wire::cm::RequestData;

/// How long it waits for an answer that must come.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long it waits for an answer that need not come.
const SOON: Duration = Duration::from_millis(100);

/// A UDP socket and a connection manager, and no queue pairs.
#[derive(Debug)]
pub struct Stranger {
    socket: UdpSocket,
    path: Path,
    manager: Manager,
    checker: Checker,
    psn: u32,
    start: Instant,
}

impl Stranger {
    /// At this address of the loopback interface, with the port of RoCE or, for 0, with
    /// another one.
    ///
    /// # Panics
    /// If the address and port cannot be used.
    #[must_use]
    pub fn at(local: Ipv4Addr, port: u16, remote: IpAddr) -> Self {
        let socket = UdpSocket::bind((local, port)).unwrap();
        let value = libc::IP_PMTUDISC_DO;
        // SAFETY: the option takes an integer, and its size is given.
        let set = unsafe {
            let (option, length) = (libc::IP_MTU_DISCOVER, size_of_val(&value) as u32);
            let value = (&raw const value).cast();
            libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_IP, option, value, length)
        };
        assert_eq!(set, 0);
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            socket,
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

    /// Asks for a connection, as a host does for its admin queue.
    pub fn ask(&mut self, qpn: u32) -> ConnId {
        self.ask_with(qpn, &RequestData::new(0, 32, 31, 0))
    }

    /// Asks for a connection with this as NVMe's part of the request.
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

    /// The time, as its connection manager counts it.
    fn now(&self) -> ProtoInstant {
        ProtoInstant::after(self.start.elapsed())
    }

    /// Sends the messages of its connection manager.
    pub fn say(&mut self) {
        while let Some(message) = self.manager.poll_transmit() {
            self.send_mad(&message.mad, |_| {});
        }
    }

    /// Drops the messages of its connection manager.
    pub fn say_nothing(&mut self) {
        while self.manager.poll_transmit().is_some() {}
    }

    /// Sends a datagram to the target's QP1, after `change`.
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

    /// Sends a packet.
    ///
    /// # Panics
    /// If the system refuses it.
    pub fn send(&self, packet: &Packet<'_>) {
        let mut bytes = [0; 512];
        let length = packet.emit(&mut bytes);
        let route = Route::Udp {
            source: self.path.local,
            destination: self.path.remote,
            source_port: self.socket.local_addr().unwrap().port(),
        };
        let length = icrc::seal(&route, Ip::of_segment(0), &mut bytes, length);
        let to = (self.path.remote, ROCE_PORT);
        self.socket.send_to(&bytes[..length], to).unwrap();
    }

    /// As [`Self::receive`], for a while: the target may say nothing.
    ///
    /// # Panics
    /// As [`Self::receive`].
    pub fn receive_soon(&mut self) -> Option<CmEvent> {
        self.socket.set_read_timeout(Some(SOON)).unwrap();
        let mut bytes = [0; 1];
        let came = self.socket.peek(&mut bytes).is_ok();
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        came.then(|| self.receive())
    }

    /// Reads the target's next answer. [`Self::say`] sends what a good peer would say
    /// to it, [`Self::say_nothing`] does not.
    ///
    /// # Panics
    /// If none comes, or it comes from elsewhere or is not whole.
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
