//! A whole target by user-space RoCE, and peers that misbehave below NVMe: they
//! speak through a UDP socket of their own, one datagram at a time.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_config::{Config, Flags};
use cairn_initiator::{Data, Host, HostOptions, command};
use cairn_rdma::{Marked, PKey, Provider};
use cairn_roce::Soft;
use cairn_roce::cm::{CmEvent, ConnId, Connect, Identity, Manager, Path, QpTerms};
use cairn_roce::counters::Counters;
use cairn_roce::wire::icrc::{self, Checker, Identity as Ip, Route};
use cairn_roce::wire::mad::{GSI_QKEY, GSI_QPN};
use cairn_roce::wire::udp::ROCE_PORT;
use cairn_roce::wire::{Deth, Opcode, Packet};
use cairn_target::Target;
use cairn_tests::harness::{NQN, host_nqn, nqn, own_loopback_address, subsystem};
use nvme_proto::wire::IntoBytes;
use nvme_proto::wire::cm::RequestData;

const PATIENCE: Duration = Duration::from_secs(20);

/// A target, and the provider that it listens by.
struct Victim {
    target: Target,
    soft: Soft,
}

impl Victim {
    fn start() -> Self {
        let address = own_loopback_address();
        let exports = subsystem(NQN, &["mem:1MiB block_size = 512"]);
        let listener = format!("[[listener]]\naddress = \"{address}\"\nprovider = \"soft\"\n");
        let text = format!("[target]\nreactors = 1\n{exports}\n{listener}");
        let config = Config::parse("test", &text, &Flags::default()).unwrap();
        let soft = Soft::default();
        let provider: Arc<dyn Provider> = Arc::new(soft.clone());
        let target = Target::start(config, vec![provider]).unwrap();
        Self { target, soft }
    }

    fn address(&self) -> SocketAddr {
        self.target.addresses()[0]
    }

    fn counters(&self) -> Counters {
        self.soft.counters()[0].1
    }

    /// A host from an address of its own connects, and has its I/O done.
    fn serves_others(&self) {
        let options = HostOptions {
            timeout: PATIENCE,
            ..HostOptions::new(self.address(), nqn(NQN), host_nqn("good"))
        };
        let mut host = Host::connect(&Soft::default(), options).unwrap();
        let buffer = host.buffer(512).unwrap();
        buffer.write(0, &[7; 512]);
        let data = Data::start_of(&buffer, 512);
        host.run(1, command::write(1, 0, 1), data).unwrap();
        buffer.write(0, &[0; 512]);
        host.run(1, command::read(1, 0, 1), data).unwrap();
        assert_eq!(buffer.bytes(0, 512), [7; 512]);
        host.shutdown().unwrap();
    }
}

/// A peer with a UDP socket and a connection manager, and no queue pairs.
struct Peer {
    socket: UdpSocket,
    path: Path,
    manager: Manager,
    checker: Checker,
    psn: u32,
}

impl Peer {
    fn new(victim: &Victim) -> Self {
        let local: Ipv4Addr = own_loopback_address();
        let socket = UdpSocket::bind((local, ROCE_PORT)).unwrap();
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
                remote: victim.address().ip(),
            },
            manager: Manager::new(Identity::new(9)),
            checker: Checker::new(),
            psn: 0,
        }
    }

    /// Asks for a connection, as a host does for its admin queue.
    fn ask(&mut self, qpn: u32) -> ConnId {
        let mut private_data = [0; 56];
        private_data[..32].copy_from_slice(RequestData::new(0, 32, 31, 0).as_bytes());
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
        let id = self.manager.connect(Instant::now(), &wish);
        let request = self.manager.poll_transmit().unwrap();
        self.send(&request.mad, |_| {});
        id
    }

    /// Sends a datagram to the target's QP1, after `change`.
    fn send(&mut self, mad: &[u8], change: impl Fn(&mut Packet<'_>)) {
        self.psn += 1;
        let mut packet = Packet::new(Opcode::UdSendOnly, GSI_QPN, self.psn);
        packet.deth = Some(Deth {
            qkey: GSI_QKEY,
            source_qpn: GSI_QPN,
        });
        packet.payload = mad;
        change(&mut packet);
        let mut bytes = [0; 512];
        let length = packet.emit(&mut bytes);
        let route = route(self.path.local, self.path.remote);
        let length = icrc::seal(&route, Ip::of_segment(0), &mut bytes, length);
        let to = (self.path.remote, ROCE_PORT);
        self.socket.send_to(&bytes[..length], to).unwrap();
    }

    /// Hears the target's next answer, and says nothing to it.
    fn hear(&mut self) -> CmEvent {
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
            let now = Instant::now();
            self.manager.handle_mad(now, self.path, 0, packet.payload);
            // What a good peer would say now.
            while self.manager.poll_transmit().is_some() {}
        }
    }
}

fn route(source: IpAddr, destination: IpAddr) -> Route {
    Route::Udp {
        source,
        destination,
        source_port: ROCE_PORT,
    }
}

/// Peers that hear the REP and never say RTU, nor anything else.
#[test]
fn peers_that_never_confirm() {
    let victim = Victim::start();
    let mut peer = Peer::new(&victim);
    for qpn in 100..140 {
        peer.ask(qpn);
        assert!(matches!(peer.hear(), CmEvent::Accepted { .. }));
    }
    victim.serves_others();
    victim.target.stop().unwrap();
}

/// More requests than anybody answers, from one address.
#[test]
fn a_flood_of_requests() {
    let victim = Victim::start();
    let mut peer = Peer::new(&victim);
    let mut qpn = 100;
    let deadline = Instant::now() + PATIENCE;
    while victim.counters().cm_dropped_requests < 100 {
        assert!(Instant::now() < deadline, "{:?}", victim.counters());
        for _ in 0..100 {
            peer.ask(qpn);
            qpn += 1;
        }
        victim.serves_others();
    }
    victim.serves_others();
    victim.target.stop().unwrap();
}

/// What is not for connection management, by one field each.
#[test]
fn datagrams_of_strangers() {
    let victim = Victim::start();
    let mut peer = Peer::new(&victim);
    let mad = [0; 256];
    let before = victim.counters();
    peer.send(&mad, |packet| packet.bth.pkey = 0x8001);
    peer.send(&mad, |packet| packet.deth.as_mut().unwrap().qkey = 1);
    peer.send(&mad, |packet| packet.bth.dest_qpn = 2);
    // By now they have been looked at, or this would not have been answered.
    peer.ask(100);
    assert!(matches!(peer.hear(), CmEvent::Accepted { .. }));
    let counted = victim.counters().rx_not_ours - before.rx_not_ours;
    assert_eq!(counted, 3);
    victim.target.stop().unwrap();
}
