//! Two queue pairs over a bad network: whatever it does costs time, never data.
//!
//! A failing seed prints the command that replays it.

mod sim;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_rdma::{
    Access, CompletionKind, Mapping, PKey, QpId, RecvWork, RemoteBuffer, Sge, SgeList, WorkStatus,
};
use cairn_roce::counters::Counters;
use cairn_roce::qp::memory::{Memory, Regions};
use cairn_roce::qp::work::{CompletionQueue, ReceiveQueue, Request, Work};
use cairn_roce::qp::{Context, Qp, QpConfig};
use cairn_roce::wire::icrc::{self, Identity, Route};
use cairn_roce::wire::{Aeth, Ieth, Opcode, Packet, Reth, Syndrome};
use sim::{Network, Random, Weather, for_each_seed};

/// Bytes of the longest message.
const MAX_LEN: u64 = 20_000;
/// Receives, and work requests, at a time.
const SLOTS: u64 = 8;
/// Operations that each end carries out.
const OPERATIONS: u64 = 30;
/// Where things stand in an end's memory.
const RECEIVES: u64 = 0;
const LOCAL: u64 = SLOTS * MAX_LEN;
const REMOTE: u64 = LOCAL + SLOTS * MAX_LEN;
const ATOMIC: u64 = REMOTE + SLOTS * MAX_LEN + 8 - (REMOTE + SLOTS * MAX_LEN) % 8;
const SIZE: u64 = ATOMIC + 8;

/// One end.
struct End {
    qp: Qp,
    mapping: Arc<Mapping>,
    key: u32,
    memory: Memory,
    receives: ReceiveQueue,
    completions: CompletionQueue,
    counters: Counters,
    /// Operations begun and ended.
    begun: u64,
    ended: u64,
    expected: VecDeque<Expected>,
    /// Messages that the peer has sent, in order, and their immediate data.
    messages: VecDeque<(Vec<u8>, Option<u32>)>,
    receive_slots: Vec<u64>,
    added: u64,
    /// WRITEs that have completed: the slot at the peer, and what must be there.
    written: Vec<(u64, Vec<u8>)>,
}

/// What an operation must have done when it completes.
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
        let key = regions.register(Arc::clone(&mapping), rights).unwrap();
        let mut qp = Qp::new(config, now);
        qp.release();
        Self {
            qp,
            mapping,
            key,
            memory: regions.reader(),
            receives: ReceiveQueue::new(SLOTS as usize),
            completions: CompletionQueue::new(64, 1),
            counters: Counters::default(),
            begun: 0,
            ended: 0,
            expected: VecDeque::new(),
            messages: VecDeque::new(),
            receive_slots: (0..SLOTS).collect(),
            added: 0,
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
            lkey: self.key,
        }
    }

    /// A SEND of a hundred bytes.
    fn send(&self, id: u64, signaled: bool) -> Work {
        Work {
            id,
            request: Request::Send {
                invalidate: None,
                immediate: None,
            },
            sges: self.sge(LOCAL, 100).into(),
            signaled,
        }
    }

    fn remote(&self, offset: u64) -> RemoteBuffer {
        RemoteBuffer {
            addr: self.mapping.addr() + offset,
            rkey: self.key,
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

    /// Looks at everything that has completed.
    fn drain(&mut self) {
        while let Some(done) = self.completions.pop() {
            let completion = done.completion;
            assert_eq!(completion.status, WorkStatus::Success, "{completion:?}");
            if completion.kind == CompletionKind::Recv {
                let (bytes, immediate) = self.messages.pop_front().expect("a message nobody sent");
                assert_eq!(done.immediate, immediate);
                assert_eq!(completion.byte_len as usize, bytes.len());
                let landed = self.bytes(RECEIVES + completion.id * MAX_LEN, bytes.len());
                assert!(landed == bytes, "a message is mangled");
                self.receive_slots.push(completion.id);
                continue;
            }
            // It speaks for unsignaled work before it.
            while let Some(expected) = self.expected.pop_front_if(|e| !e.signaled) {
                self.end(expected);
            }
            let expected = self.expected.pop_front().expect("a completion too many");
            assert_eq!(
                (completion.id, completion.kind),
                (expected.id, expected.kind)
            );
            self.end(expected);
        }
    }

    /// An operation has ended well.
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

/// Begins one operation of `ends[from]` towards the other.
fn begin(ends: &mut [End; 2], from: usize, random: &mut Random) {
    let to = 1 - from;
    let id = ends[from].begun;
    let slot = id % SLOTS;
    let length = match random.below(4) {
        0 => random.below(64),
        1 => random.below(5000),
        _ => random.below(MAX_LEN),
    };
    let bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
    let local = LOCAL + slot * MAX_LEN;
    let there = REMOTE + slot * MAX_LEN;
    let cut = random.below(length + 1);
    let mut sges = SgeList::two(
        ends[from].sge(local, cut),
        ends[from].sge(local + cut, length - cut),
    );
    let immediate = random.chance(300).then(|| random.next() as u32);
    let mut expected = Expected {
        id,
        slot,
        kind: CompletionKind::Send,
        bytes,
        fetch: false,
        signaled: true,
    };
    let request = match random.below(5) {
        0 | 1 => {
            ends[from].mapping.write(local as usize, &expected.bytes);
            let message = (expected.bytes.clone(), immediate);
            ends[to].messages.push_back(message);
            Request::Send {
                invalidate: None,
                immediate,
            }
        }
        2 => {
            ends[from].mapping.write(local as usize, &expected.bytes);
            expected.kind = CompletionKind::Write;
            if immediate.is_some() {
                ends[to].messages.push_back((Vec::new(), immediate));
            }
            let remote = ends[to].remote(there);
            Request::Write { remote, immediate }
        }
        3 => {
            ends[to].mapping.write(there as usize, &expected.bytes);
            expected.kind = CompletionKind::Read;
            expected.fetch = true;
            Request::Read {
                remote: ends[to].remote(there),
            }
        }
        _ => {
            expected.kind = CompletionKind::Read;
            expected.bytes = ends[from].added.to_ne_bytes().to_vec();
            expected.fetch = true;
            sges = ends[from].sge(local, 8).into();
            let add = random.next();
            ends[from].added = ends[from].added.wrapping_add(add);
            Request::FetchAdd {
                remote: ends[to].remote(ATOMIC),
                add,
            }
        }
    };
    // Who signals nothing would never learn that there is room again.
    expected.signaled = expected.fetch || id % 4 == 1 || random.chance(500);
    let work = Work {
        id,
        request,
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
        send_psn: psns[this],
        receive_psn: psns[1 - this],
        send_work: SLOTS as u32,
        initiator_depth: depth,
        responder_resources: depth,
        retry_count: 7,
        rnr_retry_count: 7,
        min_rnr_timer: 1 + random_timer(psns[0]),
        ack_timeout: Duration::from_millis(537),
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

/// Sends all that an end has to send.
fn transmit(ends: &mut [End; 2], from: usize, now: Instant, network: &mut Network) {
    let mut packet = [0; 4096 + 64];
    while let Some(length) = ends[from].with(|qp, cx| qp.poll_transmit(now, &mut packet, cx)) {
        let sealed = icrc::seal(&route(from), Identity::of_segment(0), &mut packet, length);
        network.send(now, 1 - from, &packet[..sealed]);
    }
}

fn exchange(seed: u64) {
    let mut random = Random::new(seed);
    let weather = Weather::of(&mut random);
    let start = Instant::now();
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
                // Its memory must be free again, at both ends.
                && random.chance(700)
            {
                begin(&mut ends, from, &mut random);
            }
            if random.chance(500) {
                ends[from].post_receive();
            }
            transmit(&mut ends, from, now, &mut network);
        }
        // The next thing that happens, or a little later.
        let timers = ends.iter().filter_map(|end| end.qp.poll_timeout());
        let next = timers.chain(network.next_arrival()).min();
        let idle = now + Duration::from_micros(100);
        now = next.unwrap_or(idle).clamp(now, idle);
        while let Some((to, bytes)) = network.receive(now) {
            // Damaged packets end here.
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
    for (this, end) in ends.iter().enumerate() {
        let sum = end.bytes(ATOMIC, 8);
        let added = ends[1 - this].added;
        assert_eq!(
            sum,
            added.to_ne_bytes(),
            "an atomic was not carried out once"
        );
    }
}

#[test]
fn data_survives() {
    for_each_seed("data_survives", 500, exchange);
}

/// A peer that falls silent is noticed, within the retry budget and no sooner.
#[test]
fn silence_is_noticed() {
    let start = Instant::now();
    let config = QpConfig {
        retry_count: 2,
        ..configs(&mut Random::new(1))[0]
    };
    let mut end = End::new(&config, start);
    let works = [end.send(1, true), end.send(2, false)];
    end.with(|qp, cx| qp.post(works.into_iter(), cx)).unwrap();
    let mut now = start;
    let mut packet = [0; 4096 + 64];
    let mut sent = 0;
    while !end.qp.is_broken() {
        while end
            .with(|qp, cx| qp.poll_transmit(now, &mut packet, cx))
            .is_some()
        {
            sent += 1;
        }
        now = end.qp.poll_timeout().expect("it waits for something");
        end.with(|qp, cx| qp.handle_timeout(now, cx));
    }
    let budget = config.ack_timeout * 3;
    let took = now.duration_since(start);
    assert!(took >= budget && took < budget * 2, "{took:?}");
    assert!(sent > 6, "sent {sent} packets only");
    let statuses = std::iter::from_fn(|| end.completions.pop())
        .map(|done| (done.completion.id, done.completion.status));
    let expected = [(1, WorkStatus::RetryExceeded), (2, WorkStatus::Flushed)];
    assert_eq!(statuses.collect::<Vec<_>>(), expected);
}

/// What nobody waits for the end of is not acknowledged one by one, and when all
/// falls silent it takes one packet to find out that it has arrived.
#[test]
fn unsignaled_work_asks_seldom_and_in_the_end() {
    let mut now = Instant::now();
    let config = QpConfig {
        send_work: 64,
        ..configs(&mut Random::new(1))[0]
    };
    let mut end = End::new(&config, now);
    let work = end.send(0, false);
    let mut out = [0; 4096 + 64];
    let mut asked = Vec::new();
    for _ in 0..40 {
        end.with(|qp, cx| qp.post([work].into_iter(), cx)).unwrap();
        while let Some(length) = end.with(|qp, cx| qp.poll_transmit(now, &mut out, cx)) {
            let packet = Packet::parse(&out[..length]).expect("it is well-formed");
            if packet.bth.ack_req {
                asked.push(packet.bth.psn);
            }
        }
        now += Duration::from_micros(10);
    }
    let psn = |sequence: u32| (config.send_psn + sequence) & 0xff_ffff;
    assert_eq!(asked, [psn(31)]);
    let acknowledge = |sequence| acknowledgement(psn(sequence));
    end.with(|qp, cx| qp.handle_packet(&acknowledge(31), false, now, cx));

    now = end.qp.poll_timeout().expect("it will ask for the rest");
    end.with(|qp, cx| qp.handle_timeout(now, cx));
    let length = end.with(|qp, cx| qp.poll_transmit(now, &mut out, cx));
    let packet = Packet::parse(&out[..length.unwrap()]).expect("it is well-formed");
    assert_eq!((packet.bth.psn, packet.bth.ack_req), (psn(39), true));
    assert!(end.with(|qp, cx| qp.poll_transmit(now, &mut out, cx).is_none()));
    end.with(|qp, cx| qp.handle_packet(&acknowledge(39), false, now, cx));
    assert_eq!(end.qp.poll_timeout(), None);
    assert_eq!(end.counters.local_ack_timeout_err, 0);
}

/// A peer that was quick, and now answers later than the usual timeout, is waited for
/// as soon as that is known.
#[test]
fn a_late_peer_is_not_sent_everything_twice() {
    let mut now = Instant::now();
    let [config, _] = configs(&mut Random::new(3));
    let mut end = End::new(&config, now);
    let mut out = [0; 4096 + 64];
    for sequence in 0..20 {
        let work = end.send(0, true);
        end.with(|qp, cx| qp.post([work].into_iter(), cx)).unwrap();
        let answered = now + Duration::from_millis(if sequence < 10 { 1 } else { 35 });
        loop {
            while end.with(|qp, cx| qp.poll_transmit(now, &mut out, cx).is_some()) {}
            match end.qp.poll_timeout() {
                Some(at) if at < answered => now = at,
                _ => break,
            }
            end.with(|qp, cx| qp.handle_timeout(now, cx));
        }
        now = answered;
        let packet = acknowledgement((config.send_psn + sequence) & 0xff_ffff);
        end.with(|qp, cx| qp.handle_packet(&packet, false, now, cx));
    }
    let late = end.counters.local_ack_timeout_err;
    assert!(late <= 2, "{late} of 10 were sent twice");
}

/// Everything that leaves is of the queue pair's partition, and what is of another is
/// not heard (IBTA 10.9.3): neither carried out nor answered, but counted.
#[test]
fn packets_are_of_the_queue_pairs_partition() {
    let now = Instant::now();
    for (own, theirs, is_heard) in [
        (0x8001, 0x8001, true),
        (0x8001, 0x0001, true),
        (0x0001, 0x8001, true),
        (0x0001, 0x0001, false),
        (0x8001, 0xffff, false),
        (0xffff, 0x8001, false),
    ] {
        let config = QpConfig {
            pkey: PKey::new(own).unwrap(),
            ..configs(&mut Random::new(1))[0]
        };
        let mut end = End::new(&config, now);
        end.post_receive();
        let remote = end.remote(LOCAL);
        let mut send = Packet::new(Opcode::SendOnly, 0, config.receive_psn);
        send.bth.ack_req = true;
        let mut read = Packet::new(Opcode::ReadRequest, 0, config.receive_psn + 1);
        read.reth = Some(Reth {
            va: remote.addr,
            rkey: remote.rkey,
            dma_len: 100,
        });
        for packet in [&mut send, &mut read] {
            packet.bth.pkey = theirs;
            end.with(|qp, cx| qp.handle_packet(packet, true, now, cx));
        }
        let own_send = end.send(1, true);
        end.with(|qp, cx| qp.post([own_send].into_iter(), cx))
            .unwrap();
        let mut out = [0; 4096 + 64];
        let mut sent = Vec::new();
        while let Some(length) = end.with(|qp, cx| qp.poll_transmit(now, &mut out, cx)) {
            let packet = Packet::parse(&out[..length]).expect("it is well-formed");
            assert_eq!(packet.bth.pkey, own, "{:?}", packet.opcode);
            sent.push(packet.opcode);
        }
        sent.sort_by_key(|opcode| opcode.code());
        let mut expected = vec![Opcode::SendOnly];
        if is_heard {
            expected.extend([Opcode::ReadResponseOnly, Opcode::Acknowledge, Opcode::Cnp]);
        }
        assert_eq!(sent, expected, "{own:#06x} hears {theirs:#06x}");
        let ignored = if is_heard { 0 } else { 2 };
        assert_eq!(end.counters.rx_not_ours, ignored);
        assert_eq!(end.completions.pop().is_some(), is_heard);
    }
}

/// A peer repeats a READ in vain, since its data are on their way already, and then
/// invalidates the key: what it repeated must not cost it the connection.
#[test]
fn a_read_repeated_before_its_key_is_invalidated() {
    let now = Instant::now();
    let config = configs(&mut Random::new(1))[0];
    let mut end = End::new(&config, now);
    end.post_receive();
    let remote = end.remote(LOCAL);
    let mut read = Packet::new(Opcode::ReadRequest, 0, config.receive_psn);
    read.reth = Some(Reth {
        va: remote.addr,
        rkey: remote.rkey,
        dma_len: 100,
    });
    let mut send = Packet::new(Opcode::SendOnlyInv, 0, config.receive_psn + 1);
    send.ieth = Some(Ieth { rkey: remote.rkey });
    send.bth.ack_req = true;
    let mut out = [0; 4096 + 64];
    let mut answers = Vec::new();
    // What comes at once is answered at once.
    for packets in [&[read][..], &[read, send]] {
        for packet in packets {
            end.with(|qp, cx| qp.handle_packet(packet, false, now, cx));
        }
        while let Some(length) = end.with(|qp, cx| qp.poll_transmit(now, &mut out, cx)) {
            let answer = Packet::parse(&out[..length]).expect("it is well-formed");
            answers.push((answer.opcode, answer.bth.psn, answer.syndrome()));
        }
    }
    assert!(!end.qp.is_broken(), "{answers:?}");
    let acknowledged = Some(Syndrome::Ack);
    let expected = [
        (Opcode::ReadResponseOnly, config.receive_psn, acknowledged),
        (Opcode::Acknowledge, config.receive_psn + 1, acknowledged),
    ];
    assert_eq!(answers, expected);
}

/// Well-formed packets of any content, in any order, from a peer that is out to
/// do harm.
#[test]
fn hostile_packets_harm_nobody() {
    for_each_seed("hostile_packets_harm_nobody", 300, |seed| {
        let mut random = Random::new(seed);
        let mut now = Instant::now();
        let config = configs(&mut random)[0];
        let mut end = End::new(&config, now);
        let sges = end.sge(LOCAL, 5000).into();
        for id in 0..3 {
            end.post_receive();
            let remote = RemoteBuffer {
                addr: 0x1000,
                rkey: 7,
            };
            let request = match id {
                0 => Request::Read { remote },
                1 => Request::Write {
                    remote,
                    immediate: None,
                },
                _ => Request::Send {
                    invalidate: None,
                    immediate: None,
                },
            };
            let work = Work {
                id,
                request,
                sges,
                signaled: true,
            };
            end.with(|qp, cx| qp.post([work].into_iter(), cx)).unwrap();
        }
        let mut out = [0; 4096 + 64];
        for _ in 0..200 {
            let mut bytes = vec![0; 12 + random.below(config.mtu.into()) as usize + 28];
            for byte in &mut bytes {
                *byte = random.next() as u8;
            }
            let opcode = Opcode::ALL[random.below(Opcode::ALL.len() as u64) as usize];
            bytes[0] = opcode.code();
            bytes[1] = 0;
            bytes[2..4].fill(0xff);
            let near = if random.chance(500) {
                config.receive_psn
            } else {
                config.send_psn
            };
            let psn = (near + random.below(8) as u32).wrapping_sub(3);
            bytes[9..12].copy_from_slice(&psn.to_be_bytes()[1..]);
            if random.chance(500) && opcode.has_reth() {
                // A right key, for once.
                bytes[12..20].copy_from_slice(&end.mapping.addr().to_be_bytes());
                bytes[20..24].copy_from_slice(&end.key.to_be_bytes());
                bytes[24..26].fill(0);
            }
            let packet = Packet::parse(&bytes).unwrap();
            end.with(|qp, cx| qp.handle_packet(&packet, random.chance(10), now, cx));
            let burst = random.below(20);
            for _ in 0..burst {
                end.with(|qp, cx| qp.poll_transmit(now, &mut out, cx));
            }
            while end.completions.pop().is_some() {}
            now += Duration::from_millis(random.below(40));
            if end.qp.poll_timeout().is_some_and(|at| at <= now) {
                end.with(|qp, cx| qp.handle_timeout(now, cx));
            }
        }
    });
}
