//! Two queue pairs over an unreliable network: faults may delay data, but not change it.

mod adapter;
mod long_path;
mod one_end;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use cairn_roce_proto::time::Instant;

use cairn_base::Mapping;
use cairn_rdma::{
    Access, CompletionKind, Operation, PKey, QpId, RecvWork, RemoteBuffer, SendWork, Sge, SgeList,
    WorkStatus,
};
use cairn_roce::memory::{Regions, View};
use cairn_roce_proto::counters::Counters;
use cairn_roce_proto::qp::memory::Memory as _;
use cairn_roce_proto::qp::work::{CompletionQueue, ReceiveQueue};
use cairn_roce_proto::qp::{Context, Qp, QpConfig};
use cairn_roce_proto::wire::cm::LongSend;
use cairn_roce_proto::wire::icrc::{self, Identity, Route};
use cairn_roce_proto::wire::packet;
use cairn_roce_proto::wire::{
    Aeth, AtomicEth, Ieth, ImmDt, NakCode, Opcode, Packet, Reth, Syndrome,
};
use cairn_sim::Random;
use cairn_sim::network::{Datagram, Network, Weather};
use cairn_sim::seeds::for_each_seed;

const MAX_LEN: u64 = 20_000;
const SLOTS: u64 = 8;
const OPERATIONS: u64 = 30;
const RECEIVES: u64 = 0;
const LOCAL: u64 = SLOTS * MAX_LEN;
const REMOTE: u64 = LOCAL + SLOTS * MAX_LEN;
const SIZE: u64 = REMOTE + SLOTS * MAX_LEN;

struct End {
    qp: Qp,
    mapping: Arc<Mapping>,
    lkey: u32,
    rkey: u32,
    memory: View,
    receives: ReceiveQueue,
    completions: CompletionQueue,
    counters: Counters,
    begun: u64,
    ended: u64,
    expected: VecDeque<Expected>,
    messages: VecDeque<Vec<u8>>,
    receive_slots: Vec<u64>,
    written: Vec<(u64, Vec<u8>)>,
}

#[derive(Debug)]
struct Expected {
    id: u64,
    slot: u64,
    kind: CompletionKind,
    bytes: Vec<u8>,
    fetch: bool,
    signaled: bool,
}

const ID: QpId = QpId::new(0, 0);

impl End {
    fn new(config: &QpConfig, now: Instant) -> Self {
        let mapping = Arc::new(Mapping::anonymous(SIZE as usize).unwrap());
        let regions = Arc::new(Regions::default());
        let rights = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let keys = regions.register(Arc::clone(&mapping), rights).unwrap();
        let mut qp = Qp::new(config, now);
        qp.release();
        Self {
            qp,
            mapping,
            lkey: keys.lkey,
            rkey: keys.rkey.expect("peers were given rights"),
            memory: regions.reader(),
            receives: ReceiveQueue::new(SLOTS as usize),
            completions: CompletionQueue::new(64, 1),
            counters: Counters::default(),
            begun: 0,
            ended: 0,
            expected: VecDeque::new(),
            messages: VecDeque::new(),
            receive_slots: (0..SLOTS).collect(),
            written: Vec::new(),
        }
    }

    fn with<T>(&mut self, run: impl FnOnce(&mut Qp, &mut Context<'_>) -> T) -> T {
        let mut cx = Context {
            qp: ID,
            memory: &self.memory,
            receives: &mut self.receives,
            completions: &mut self.completions,
            counters: &mut self.counters,
        };
        run(&mut self.qp, &mut cx)
    }

    fn sge(&self, offset: u64, length: u64) -> Sge {
        Sge {
            addr: self.mapping.addr() + offset,
            length: length as u32,
            lkey: self.lkey,
        }
    }

    fn send(&self, id: u64, signaled: bool) -> SendWork {
        SendWork {
            id,
            op: Operation::Send,
            sges: self.sge(LOCAL, 100).into(),
            signaled,
        }
    }

    fn remote(&self, offset: u64) -> RemoteBuffer {
        RemoteBuffer {
            addr: self.mapping.addr() + offset,
            rkey: self.rkey,
        }
    }

    fn bytes(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut out = vec![0; length];
        self.mapping.read(offset as usize, &mut out);
        out
    }

    fn post_receive(&mut self) {
        let Some(slot) = self.receive_slots.pop() else {
            return;
        };
        let work = RecvWork {
            id: slot,
            sges: self.sge(RECEIVES + slot * MAX_LEN, MAX_LEN).into(),
        };
        assert!(self.receives.post(&[work]));
    }

    fn drain(&mut self) {
        while let Some(completion) = self.completions.pop() {
            assert_eq!(completion.status, WorkStatus::Success, "{completion:?}");
            if completion.kind == CompletionKind::Recv {
                let bytes = self.messages.pop_front().expect("the peer sent a message");
                assert_eq!(completion.byte_len as usize, bytes.len());
                let landed = self.bytes(RECEIVES + completion.id * MAX_LEN, bytes.len());
                assert!(landed == bytes, "a message is mangled");
                self.receive_slots.push(completion.id);
                continue;
            }
            let expected = loop {
                let expected = self.expected.pop_front().expect("a completion too many");
                if expected.signaled {
                    break expected;
                }
                self.end(expected);
            };
            assert_eq!(
                (completion.id, completion.kind),
                (expected.id, expected.kind)
            );
            self.end(expected);
        }
    }

    fn end(&mut self, expected: Expected) {
        self.ended += 1;
        if expected.kind == CompletionKind::Write {
            self.written.push((expected.slot, expected.bytes));
        } else if expected.fetch {
            let landed = self.bytes(LOCAL + expected.slot * MAX_LEN, expected.bytes.len());
            assert!(landed == expected.bytes, "fetched bytes are mangled");
        }
    }
}

fn begin(ends: &mut [End; 2], from: usize, random: &mut Random) {
    let to = 1 - from;
    let id = ends[from].begun;
    let slot = id % SLOTS;
    let length = match random.below(4) {
        0 => random.below(64),
        1 => 4000 + random.below(200),
        _ => random.below(MAX_LEN),
    };
    let bytes: Vec<u8> = (0..length).map(|_| random.bits() as u8).collect();
    let local = LOCAL + slot * MAX_LEN;
    let there = REMOTE + slot * MAX_LEN;
    let cut = random.below(length + 1);
    let sges = SgeList::two(
        ends[from].sge(local, cut),
        ends[from].sge(local + cut, length - cut),
    );
    let mut expected = Expected {
        id,
        slot,
        kind: CompletionKind::Send,
        bytes,
        fetch: false,
        signaled: true,
    };
    let op = match random.below(4) {
        0 | 1 => {
            ends[from].mapping.write(local as usize, &expected.bytes);
            ends[to].messages.push_back(expected.bytes.clone());
            Operation::Send
        }
        2 => {
            ends[from].mapping.write(local as usize, &expected.bytes);
            expected.kind = CompletionKind::Write;
            Operation::Write(ends[to].remote(there))
        }
        _ => {
            ends[to].mapping.write(there as usize, &expected.bytes);
            expected.kind = CompletionKind::Read;
            expected.fetch = true;
            Operation::Read(ends[to].remote(there))
        }
    };
    expected.signaled = expected.fetch || id % 4 == 1 || random.chance(500);
    let work = SendWork {
        id,
        op,
        sges,
        signaled: expected.signaled,
    };
    let posted = ends[from].with(|qp, cx| qp.post([work].into_iter(), cx));
    posted.expect("there is room");
    ends[from].expected.push_back(expected);
    ends[from].begun += 1;
}

fn configs(random: &mut Random) -> [QpConfig; 2] {
    let mtu = 256 << random.below(5);
    let psns = [
        random.below(1 << 24) as u32,
        0xff_ffff - random.below(40) as u32,
    ];
    let depth = 1 + random.below(4) as u8;
    let config = |this: usize| QpConfig {
        dest_qpn: 0x11 + this as u32,
        pkey: PKey::DEFAULT,
        mtu,
        long_send: psns[0].is_multiple_of(2).then_some(LongSend::MAX),
        send_psn: psns[this],
        receive_psn: psns[1 - this],
        send_work: SLOTS as u32,
        initiator_depth: depth,
        responder_resources: depth,
        retry_count: 7,
        rnr_retry_count: 7,
        min_rnr_timer: 1 + random_timer(psns[0]),
        ack_timeout: Some(Duration::from_millis(537)),
    };
    [config(0), config(1)]
}

fn random_timer(psn: u32) -> u8 {
    (psn % 20) as u8
}

fn acknowledgement(psn: u32) -> Packet<'static> {
    let mut packet = Packet::new(Opcode::Acknowledge, 0, psn);
    packet.aeth = Some(Aeth {
        syndrome: Syndrome::Ack.code(),
        msn: 0,
    });
    packet
}

fn route(from: usize) -> Route {
    let addresses = ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
    Route::Udp {
        source: addresses[from],
        destination: addresses[1 - from],
        source_port: 0xc000,
    }
}

fn transmit(
    ends: &mut [End; 2],
    from: usize,
    now: Instant,
    network: &mut Network<Instant, Datagram>,
) {
    let mut send = |packet: &mut [u8], length| {
        let sealed = icrc::seal(&route(from), Identity::of_segment(0), packet, length);
        let datagram = Datagram {
            to: 1 - from,
            bytes: packet[..sealed].to_vec(),
        };
        network.send(now, datagram);
    };
    let mut packet = [0; packet::MAX_LEN];
    while let Some(length) = ends[from].with(|qp, cx| qp.poll_transmit(now, &mut packet, cx)) {
        let opcode = packet[0];
        send(&mut packet, length);
        for packet in
            train(&mut ends[from], now, opcode, length, 3).chunks_mut(length + packet::ICRC_LEN)
        {
            send(packet, length);
        }
    }
}

/// Returns up to `limit` packets that follow a middle packet, with room for their ICRCs.
fn train(end: &mut End, now: Instant, opcode: u8, length: usize, limit: usize) -> Vec<u8> {
    let middle = [
        Opcode::SendMiddle,
        Opcode::WriteMiddle,
        Opcode::ReadResponseMiddle,
    ];
    let middle = middle.map(Opcode::code);
    if !middle.contains(&opcode) {
        return Vec::new();
    }
    let stride = length + packet::ICRC_LEN;
    let mut room = vec![0; limit * stride];
    let count = end.with(|qp, cx| qp.poll_train(now, &mut room, stride, cx));
    room.truncate(count * stride);
    room
}

fn exchange(seed: u64) {
    let mut random = Random::new(seed);
    let weather = Weather::foul(&mut random);
    let start = Instant::START;
    let mut now = start;
    let configs = configs(&mut random);
    let mut ends = configs.map(|config| End::new(&config, now));
    let mut network = Network::new(weather, Random::new(!seed));
    let congested = random.below(30);
    while ends
        .iter()
        .any(|end| end.ended < OPERATIONS || !end.messages.is_empty())
    {
        for from in 0..2 {
            while ends[from].begun < OPERATIONS
                && ends[from].expected.len() < SLOTS as usize
                && random.chance(700)
            {
                begin(&mut ends, from, &mut random);
            }
            if random.chance(500) {
                ends[from].post_receive();
            }
            transmit(&mut ends, from, now, &mut network);
        }
        let timers = ends.iter().filter_map(|end| end.qp.poll_timeout());
        let next = timers.chain(network.next_arrival()).min();
        let idle = now + Duration::from_micros(100);
        now = next.unwrap_or(idle).clamp(now, idle);
        while let Some(Datagram { to, bytes }) = network.receive(now) {
            let identity = Identity::of_segment(0);
            let Some(transport) = icrc::open(&route(1 - to), identity, &bytes) else {
                continue;
            };
            let packet = Packet::parse(transport).expect("what was sent is well-formed");
            let mark = random.chance(congested);
            ends[to].with(|qp, cx| qp.handle_packet(&packet, mark, now, cx));
        }
        for end in &mut ends {
            if end.qp.poll_timeout().is_some_and(|at| at <= now) {
                end.with(|qp, cx| qp.handle_timeout(now, cx));
            }
            end.drain();
        }
        for from in 0..2 {
            for (slot, bytes) in std::mem::take(&mut ends[from].written) {
                let there = ends[1 - from].bytes(REMOTE + slot * MAX_LEN, bytes.len());
                assert!(there == bytes, "a WRITE is mangled");
            }
        }
        let took = now.duration_since(start);
        assert!(
            took < Duration::from_secs(20),
            "{weather:?} holds up {:#?}",
            ends.each_ref().map(|end| &end.qp)
        );
    }
}

const COMMAND: &str = "cargo test -p cairn-roce --test simulation";

#[test]
fn data_survives() {
    for_each_seed(COMMAND, 500, exchange);
}
