//! Two connection managers over an unreliable network, and their answers to invalid messages.

mod floods;
mod forged;
mod long_sends;

use std::time::Duration;

use cairn_roce_proto::time::Instant;

use cairn_rdma::{Marked, PKey};
use cairn_roce_proto::cm::{CmEvent, ConnId, Connect, Draw, Identity, Manager, Path, QpTerms};
use cairn_roce_proto::wire::cm::lap::STATUS_UNSUPPORTED;
use cairn_roce_proto::wire::cm::{CommIds, Lap, Message, RejReason, Req, SidrReq, padded};
use cairn_sim::Random;
use cairn_sim::network::{Datagram, Network, Weather};
use cairn_sim::seeds::for_each_seed;

const COMMAND: &str = "cargo test -p cairn-roce-proto --test connections";

fn draw(seed: u64) -> Draw {
    let mut random = Random::new(seed);
    Box::new(move || random.bits())
}

const HOST: usize = 0;
const TARGET: usize = 1;

fn path(from: usize) -> Path {
    let addresses = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
    Path {
        local: addresses[from],
        remote: addresses[1 - from],
    }
}

fn terms(qpn: u32) -> QpTerms {
    QpTerms {
        qpn,
        starting_psn: qpn * 3,
        responder_resources: 4,
        initiator_depth: 2,
        rnr_retry_count: 7,
        long_send: None,
    }
}

fn wish(qpn: u32) -> Connect {
    Connect {
        path: path(HOST),
        local_port: 49_000,
        remote_port: 4420,
        terms: terms(qpn),
        retry_count: 7,
        path_mtu: 5,
        ack_timeout: 17,
        pkey: PKey::DEFAULT,
        marked: Marked {
            traffic_class: 96,
            hop_limit: 64,
        },
        private_data: [7; 56],
        timeout: Duration::from_secs(30),
    }
}

struct Pair {
    managers: [Manager; 2],
    network: Network<Instant, Datagram>,
    now: Instant,
    events: [Vec<CmEvent>; 2],
}

impl Pair {
    fn new(seed: u64, weather: Weather) -> Self {
        Self {
            managers: [1, 2].map(|end| Manager::new(Identity::new(draw(seed << 8 | end)))),
            network: Network::new(weather, Random::new(seed)),
            now: Instant::START,
            events: Default::default(),
        }
    }

    fn run(&mut self, limit: Duration, ready: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            for from in 0..2 {
                while let Some(transmit) = self.managers[from].poll_transmit() {
                    assert_eq!(transmit.path, path(from));
                    let datagram = Datagram {
                        to: 1 - from,
                        bytes: transmit.mad.to_vec(),
                    };
                    self.network.send(self.now, datagram);
                }
                while let Some(event) = self.managers[from].poll_event() {
                    self.events[from].push(event);
                }
            }
            if ready(self) {
                return true;
            }
            let timers = self.managers.iter().filter_map(Manager::poll_timeout);
            let Some(next) = timers.chain(self.network.next_arrival()).min() else {
                return false;
            };
            if next > end {
                return false;
            }
            self.now = self.now.max(next);
            while let Some(Datagram { to, bytes }) = self.network.receive(self.now) {
                self.managers[to].handle_mad(self.now, path(to), 0, &bytes);
            }
            for manager in &mut self.managers {
                manager.handle_timeout(self.now);
            }
        }
    }

    fn ask(&mut self, qpn: u32) -> ConnId {
        self.managers[HOST].connect(self.now, &wish(qpn));
        self.run(Duration::from_secs(1), |pair| pair.request().is_some());
        self.request().unwrap()
    }

    fn request(&self) -> Option<ConnId> {
        self.events[TARGET].iter().find_map(|event| match event {
            CmEvent::Request { id, .. } => Some(*id),
            _ => None,
        })
    }
}

const FAIR: Weather = Weather {
    latency: Duration::from_micros(100),
    ..Weather::FAIR
};

#[test]
fn connections_come_and_go() {
    for_each_seed(COMMAND, 1000, |seed| {
        let mut random = Random::new(seed);
        let weather = Weather {
            corruption: 0,
            ..Weather::foul(&mut random)
        };
        let mut pair = Pair::new(seed, weather);
        let host = pair.managers[HOST].connect(pair.now, &wish(0x1234));
        assert!(pair.run(Duration::from_secs(25), |pair| pair.request().is_some()));
        let target = pair.request().unwrap();
        let CmEvent::Request { request, .. } = &pair.events[TARGET][0] else {
            panic!("{:?}", pair.events)
        };
        assert_eq!(request.local, "10.0.0.2:4420".parse().unwrap());
        assert_eq!(request.peer, "10.0.0.1:49000".parse().unwrap());
        assert_eq!(request.terms, terms(0x1234));
        assert_eq!(request.private_data, [7; 56]);
        let now = pair.now;
        pair.managers[TARGET]
            .accept(now, target, &terms(0x99), b"hello")
            .unwrap();
        let host_knows = |pair: &Pair| {
            let accepted = |e: &CmEvent| matches!(e, CmEvent::Accepted { .. });
            pair.events[HOST].iter().any(accepted)
        };
        assert!(
            pair.run(Duration::from_secs(19), host_knows),
            "{:?}",
            pair.events
        );
        let target_knows = |pair: &Pair| {
            let up = |e: &CmEvent| matches!(e, CmEvent::Established { .. });
            pair.events[TARGET].iter().any(up)
        };
        if !pair.run(Duration::from_secs(1), target_knows) {
            pair.managers[TARGET].received_packet(target);
        }
        assert!(pair.run(Duration::from_secs(1), target_knows));

        let (leaver, id) = if random.chance(500) {
            (HOST, host)
        } else {
            (TARGET, target)
        };
        let now = pair.now;
        pair.managers[leaver].disconnect(now, id);
        let disconnected = |pair: &Pair| {
            let gone = |e: &CmEvent| matches!(e, CmEvent::Disconnected { .. });
            pair.events[1 - leaver].iter().any(gone)
        };
        assert!(
            pair.run(Duration::from_secs(10), disconnected),
            "{:?}",
            pair.events
        );
        pair.run(Duration::from_secs(60), |_| false);
        assert_eq!(pair.managers[HOST].poll_timeout(), None);
        assert_eq!(pair.managers[TARGET].poll_timeout(), None);
        let counts = [pair.events[HOST].len(), pair.events[TARGET].len()];
        let mut expected = [1, 2];
        expected[1 - leaver] += 1; // counts the event Disconnected
        assert_eq!(counts, expected, "{:?}", pair.events);
    });
}

#[test]
fn a_refusal_is_reported() {
    let mut pair = Pair::new(1, FAIR);
    let id = pair.ask(5);
    pair.managers[TARGET]
        .reject(id, RejReason::Consumer, &[], b"no")
        .unwrap();
    pair.run(Duration::from_secs(1), |_| false);
    let [
        CmEvent::Rejected {
            reason: 28,
            private_data,
            ..
        },
    ] = &pair.events[HOST][..]
    else {
        panic!("{:?}", pair.events[HOST]);
    };
    assert_eq!(&private_data[..3], b"no\0");
    assert!(
        pair.managers[TARGET]
            .accept(pair.now, id, &terms(1), &[])
            .is_err()
    );
}

#[test]
fn a_host_that_gives_up_is_withdrawn() {
    let mut pair = Pair::new(2, FAIR);
    let host = pair.managers[HOST].connect(pair.now, &wish(5));
    pair.run(Duration::from_secs(1), |pair| pair.request().is_some());
    let now = pair.now;
    pair.managers[HOST].disconnect(now, host);
    pair.run(Duration::from_secs(1), |_| false);
    assert!(
        matches!(pair.events[TARGET][..], [_, CmEvent::Withdrawn { .. }]),
        "{:?}",
        pair.events[TARGET]
    );
}

#[test]
fn a_silent_target_times_out() {
    let no_network = Weather { loss: 1000, ..FAIR };
    let mut pair = Pair::new(3, no_network);
    let start = pair.now;
    pair.managers[HOST].connect(start, &wish(5));
    pair.run(Duration::from_secs(100), |_| false);
    assert!(matches!(pair.events[HOST][..], [CmEvent::TimedOut { .. }]));
    let took = pair.now.duration_since(start);
    assert_eq!(took, wish(5).timeout);
}

const MIRRORED: u8 = 0x44;

fn answer_to(message: &Message) -> (Vec<Message>, Vec<CmEvent>) {
    let mut target = Manager::new(Identity::new(draw(3)));
    target.handle_mad(Instant::START, path(TARGET), MIRRORED, &message.emit(77));
    let transmits = std::iter::from_fn(|| target.poll_transmit());
    let answers = transmits.map(|transmit| {
        let (header, message) = Message::parse(&transmit.mad).unwrap();
        assert_eq!((header.transaction_id, transmit.path), (77, path(TARGET)));
        let asked = match message {
            Message::Rej(_) => 96,
            _ => MIRRORED,
        };
        assert_eq!(transmit.marked.traffic_class, asked, "{message:?}");
        message
    });
    let answers = answers.collect();
    let events = std::iter::from_fn(|| target.poll_event()).collect();
    (answers, events)
}

#[test]
fn there_are_no_datagram_services() {
    let request = SidrReq {
        request_id: 5,
        pkey: 0xffff,
        service_id: 0x0106_1144,
        private_data: [1; 216],
    };
    let (answers, events) = answer_to(&Message::SidrReq(request));
    let [Message::SidrRep(answer)] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!((answer.request_id, answer.status), (5, 1));
    assert_eq!(answer.service_id, 0x0106_1144);
    let (answers, more) = answer_to(&Message::SidrRep(answer.clone()));
    assert!(answers.is_empty() && events.is_empty() && more.is_empty());
}

#[test]
fn there_is_no_automatic_path_migration() {
    let mut pair = Pair::new(6, FAIR);
    pair.managers[HOST].connect(pair.now, &wish(5));
    let req = pair.managers[HOST].poll_transmit().unwrap().mad;
    assert_eq!(req[24 + 96..24 + 140], [0; 44]);
    pair.managers[TARGET].handle_mad(pair.now, path(TARGET), 0, &req);
    assert!(pair.run(Duration::ZERO, |pair| pair.request().is_some()));
    let (id, now) = (pair.request().unwrap(), pair.now);
    let target = &mut pair.managers[TARGET];
    target.accept(now, id, &terms(9), &[]).unwrap();
    let rep = target.poll_transmit().unwrap().mad;
    let Some((_, Message::Rep(rep))) = Message::parse(&rep) else {
        panic!("the answer is a REP");
    };
    let lap = Message::Lap(Lap {
        ids: CommIds {
            local: rep.ids.remote,
            remote: rep.ids.local,
        },
        path: [3; 224],
    });
    let stranger = Path {
        remote: "10.0.0.66".parse().unwrap(),
        ..path(TARGET)
    };
    target.handle_mad(now, stranger, 0, &lap.emit(78));
    assert!(target.poll_transmit().is_none());
    target.handle_mad(now, path(TARGET), 0, &lap.emit(78));
    let apr = target.poll_transmit().expect("an answer").mad;
    let Some((header, Message::Apr(apr))) = Message::parse(&apr) else {
        panic!("the answer is an APR");
    };
    assert_eq!((header.transaction_id, apr.ids), (78, rep.ids));
    assert_eq!(apr.status, STATUS_UNSUPPORTED);
}

#[test]
fn a_request_says_which_partition_it_is_of() {
    for pkey in [0xffff, 0x7fff, 0x8001, 0x0001] {
        let pkey = PKey::new(pkey).unwrap();
        let mut host = Manager::new(Identity::new(draw(1)));
        let wish = Connect { pkey, ..wish(5) };
        host.connect(Instant::START, &wish);
        let mad = host.poll_transmit().unwrap().mad;
        let Some((_, Message::Req(req))) = Message::parse(&mad) else {
            panic!("the first message is a REQ");
        };
        assert_eq!(req.pkey, pkey.bits());
        let (answers, events) = answer_to(&Message::Req(req.clone()));
        let [CmEvent::Request { request, .. }] = &events[..] else {
            panic!("{pkey}: {answers:?} {events:?}");
        };
        assert_eq!(request.pkey, pkey);

        for pkey in [0x0000, 0x8000] {
            let req = req.clone();
            let (answers, events) = answer_to(&Message::Req(Req { pkey, ..req }));
            let unsupported = RejReason::UnsupportedRequest as u16;
            assert!(
                matches!(&answers[..], [Message::Rej(rej)] if rej.reason == unsupported),
                "{pkey:#x}: {answers:?}"
            );
            assert!(events.is_empty(), "{pkey:#x}: {events:?}");
        }
    }
}

#[test]
fn an_address_that_was_not_proven_is_answered_once() {
    for leaves in [false, true] {
        answered_once(leaves);
    }
}

fn answered_once(leaves: bool) {
    let mut pair = Pair::new(8, FAIR);
    let (id, now) = (pair.ask(5), pair.now);
    let target = &mut pair.managers[TARGET];
    target.accept(now, id, &terms(9), &[]).unwrap();
    assert!(target.poll_transmit().is_some(), "the REP");
    if leaves {
        target.disconnect(now, id);
        assert!(target.poll_transmit().is_none());
    }
    let mut at = now;
    while let Some(next) = target.poll_timeout() {
        assert!(next > at);
        at = next;
        target.handle_timeout(at);
        assert!(target.poll_transmit().is_none());
    }
    match target.poll_event() {
        Some(CmEvent::TimedOut { .. }) => assert!(!leaves),
        event => assert!(leaves && event.is_none(), "{event:?}"),
    }
    assert_eq!(target.connections(), 0);
}

#[test]
fn a_target_that_leaves_at_once_says_so() {
    let mut pair = Pair::new(9, FAIR);
    let (id, now) = (pair.ask(5), pair.now);
    let target = &mut pair.managers[TARGET];
    target.accept(now, id, &terms(9), &[]).unwrap();
    target.disconnect(now, id);
    pair.run(Duration::from_secs(600), |_| false);
    assert!(
        matches!(
            pair.events[HOST][..],
            [CmEvent::Accepted { .. }, CmEvent::Disconnected { .. }]
        ),
        "{:?}",
        pair.events[HOST]
    );
    assert_eq!(pair.events[TARGET].len(), 1, "{:?}", pair.events[TARGET]);
    assert_eq!(pair.managers.each_ref().map(Manager::connections), [0, 0]);
}

#[test]
fn all_messages_of_a_connection_carry_its_marking() {
    let ours = Marked {
        traffic_class: 0x20,
        hop_limit: 7,
    };
    let later = Marked {
        traffic_class: 0x88,
        hop_limit: 9,
    };
    let says = |pair: &mut Pair| {
        let transmit = pair.managers[TARGET].poll_transmit().unwrap();
        (Message::parse(&transmit.mad).unwrap().1, transmit.marked)
    };
    for refuses in [true, false] {
        let mut pair = Pair::new(7, FAIR);
        let (id, now) = (pair.ask(5), pair.now);
        let target = &mut pair.managers[TARGET];
        target.mark(id, ours);
        if refuses {
            let reason = RejReason::Consumer;
            target.reject(id, reason, &[], &[]).unwrap();
            let (message, marked) = says(&mut pair);
            assert!(matches!(message, Message::Rej(_)));
            assert_eq!(marked, ours);
            continue;
        }
        target.accept(now, id, &terms(9), &[]).unwrap();
        target.mark(id, later);
        target.handle_timeout(now + Duration::from_millis(300));
        let (message, marked) = says(&mut pair);
        assert!(pair.managers[TARGET].poll_transmit().is_none(), "unasked");
        pair.managers[HOST].handle_timeout(now + Duration::from_millis(300));
        let again = pair.managers[HOST].poll_transmit().unwrap();
        pair.managers[TARGET].handle_mad(now, path(TARGET), 0, &again.mad);
        assert!(matches!(message, Message::Rep(_)));
        assert_eq!(marked, ours);
        let (message, marked) = says(&mut pair);
        assert!(matches!(message, Message::Rep(_)), "said again");
        assert_eq!(marked, later);
        pair.managers[TARGET].received_packet(id);
        pair.managers[TARGET].disconnect(now, id);
        let (message, marked) = says(&mut pair);
        assert!(matches!(message, Message::Dreq(_)));
        assert_eq!(marked, later);
    }
}

#[test]
fn strangers_change_nothing() {
    for_each_seed(COMMAND, 100, |seed| {
        let mut random = Random::new(seed);
        let mut pair = Pair::new(seed, FAIR);
        let id = pair.ask(5);
        let now = pair.now;
        pair.managers[TARGET]
            .accept(now, id, &terms(9), &[])
            .unwrap();
        pair.run(Duration::from_secs(1), |_| false);
        let seen = pair.events[TARGET].len();

        let stranger = Path {
            remote: "10.0.0.66".parse().unwrap(),
            ..path(TARGET)
        };
        let mut leaving = Pair::new(seed, FAIR);
        let host = leaving.managers[HOST].connect(leaving.now, &wish(5));
        leaving.run(Duration::from_secs(1), |pair| pair.request().is_some());
        leaving.managers[HOST].disconnect(now, host);
        while let Some(transmit) = leaving.managers[HOST].poll_transmit() {
            assert!(Message::parse(&transmit.mad).is_some());
            pair.managers[TARGET].handle_mad(now, stranger, 0, &transmit.mad);
        }
        for _ in 0..200 {
            let mut mad = [0_u8; 256];
            for byte in &mut mad {
                *byte = random.bits() as u8;
            }
            mad[..4].copy_from_slice(&[1, 7, 2, 3]);
            mad[16] = 0;
            mad[17] = 0x10 + random.below(11) as u8;
            pair.managers[TARGET].handle_mad(now, path(TARGET), 0, &mad);
            pair.managers[TARGET].handle_mad(now, stranger, 0, &mad);
        }
        while let Some(event) = pair.managers[TARGET].poll_event() {
            pair.events[TARGET].push(event);
        }
        assert_eq!(pair.events[TARGET].len(), seen, "{:?}", pair.events[TARGET]);
    });
}
