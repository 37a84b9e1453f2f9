//! A whole target by user-space RoCE, and peers that misbehave below NVMe: they
//! speak through a UDP socket of their own, one datagram at a time.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use cairn_rdma::{Marked, PKey};
use cairn_roce::chance::Chance;
use cairn_roce::cm::{CmEvent, ConnId, Connect, Identity, Manager, Path, QpTerms};
use cairn_roce::wire::icrc::{self, Checker, Identity as Ip, Route};
use cairn_roce::wire::mad::{GSI_QKEY, GSI_QPN};
use cairn_roce::wire::udp::ROCE_PORT;
use cairn_roce::wire::{Deth, Ieth, Opcode, Packet};
use cairn_tests::harness::own_loopback_address;
use cairn_tests::victim::Victim;
use nvme_proto::wire::IntoBytes;
use nvme_proto::wire::cm::RequestData;

const PATIENCE: Duration = Duration::from_secs(20);
/// What a peer waits for an answer that need not come.
const SOON: Duration = Duration::from_millis(100);

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
            manager: Manager::new(Identity::new(Chance::seeded(9))),
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

    /// As [`Peer::hear`], for a while: the target may say nothing.
    fn hear_soon(&mut self) -> Option<CmEvent> {
        self.socket.set_read_timeout(Some(SOON)).unwrap();
        let mut bytes = [0; 1];
        let came = self.socket.peek(&mut bytes).is_ok();
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        came.then(|| self.hear())
    }

    /// Sends a SEND that takes a key out of use on the queue pair of these terms.
    fn invalidate(&mut self, terms: &QpTerms, rkey: u32) {
        let mut packet = Packet::new(Opcode::SendOnlyInv, terms.qpn, terms.starting_psn);
        packet.ieth = Some(Ieth { rkey });
        self.send_packet(&packet);
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
        self.send_packet(&packet);
    }

    fn send_packet(&self, packet: &Packet<'_>) {
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

/// A stranger that guesses keys, a connection for each: no key dies by it, others have
/// their I/O done meanwhile, and soon its requests for connections get no answer.
#[test]
fn guessers_of_keys_are_slowed() {
    let victim = Victim::start();
    let mut peer = Peer::new(&victim);
    let (mut qpn, mut guesses) = (100, 0_u32);
    let deadline = Instant::now() + PATIENCE;
    while victim.counters().cm_held_requests < 5 {
        assert!(Instant::now() < deadline, "{:?}", victim.counters());
        peer.ask(qpn);
        qpn += 1;
        if let Some(CmEvent::Accepted { terms, .. }) = peer.hear_soon() {
            peer.invalidate(&terms, guesses << 12);
            guesses += 1;
        }
        if qpn % 4 == 0 {
            victim.serves_others();
        }
    }
    assert!((9..40).contains(&guesses), "{guesses} guesses in all");
    victim.serves_others();
    // An endpoint publishes its counters after its round.
    while victim.counters().resp_remote_access_errors < 9 {
        assert!(Instant::now() < deadline, "{:?}", victim.counters());
        std::thread::yield_now();
    }
    victim.target.stop().unwrap();
}

/// Numbers of two starts, and of two connections: nothing that a stranger knows tells
/// another's.
#[test]
fn numbers_are_not_foreseen() {
    let mut terms = Vec::new();
    for _ in 0..4 {
        let victim = Victim::start();
        let mut peer = Peer::new(&victim);
        for qpn in 100..108 {
            peer.ask(qpn);
            let CmEvent::Accepted { terms: own, .. } = peer.hear() else {
                panic!("a request was not accepted");
            };
            terms.push(own);
        }
        victim.target.stop().unwrap();
    }
    // The top bits of a queue pair's number are its reactor's.
    let psns: Vec<u32> = terms.iter().map(|own| own.starting_psn).collect();
    let qpns: Vec<u32> = terms.iter().map(|own| own.qpn & 0x3_ffff).collect();
    for (what, bits, numbers) in [("PSN", 24, psns), ("QPN", 18, qpns)] {
        for bit in 0..bits {
            let set = numbers.iter().filter(|&number| number >> bit & 1 == 1);
            let set = set.count();
            assert!(
                set > 0 && set < numbers.len(),
                "{what}, bit {bit}: {numbers:x?}"
            );
        }
        // Whatever the step from one to the next, it is not always the same.
        let mut steps: Vec<u32> = numbers
            .windows(2)
            .map(|w| w[1].wrapping_sub(w[0]))
            .collect();
        steps.sort_unstable();
        steps.dedup();
        assert!(steps.len() > 28, "{what}: {numbers:x?}");
    }
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
