//! A network that loses, repeats, delays, reorders and damages packets, by a seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use cairn_roce::phy::wire::Frame;
use cairn_tests::random::Random;

/// The BTH's congestion byte, which the ICRC leaves out: routers may change it.
const BTH_CONGESTION: usize = 4;

/// How bad the network is, each in packets of a thousand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Weather {
    pub(crate) loss: u64,
    pub(crate) duplication: u64,
    pub(crate) corruption: u64,
    pub(crate) reordering: u64,
    pub(crate) congestion: u64,
    pub(crate) latency: Duration,
    pub(crate) jitter: Duration,
}

impl Weather {
    /// Nothing is lost, and everything is in order.
    pub(crate) const FAIR: Self = Self {
        loss: 0,
        duplication: 0,
        corruption: 0,
        reordering: 0,
        congestion: 0,
        latency: Duration::from_micros(20),
        jitter: Duration::ZERO,
    };

    /// Up to 10 % of loss, and some of everything else.
    pub(crate) fn foul(random: &mut Random) -> Self {
        let mut up_to = |most: u64| match random.below(10) {
            0..3 => 0,
            _ => random.below(most + 1),
        };
        Self {
            loss: up_to(100),
            duplication: up_to(50),
            corruption: up_to(30),
            reordering: up_to(50),
            congestion: up_to(20),
            latency: Duration::from_micros(5 + random.below(500)),
            jitter: Duration::from_micros(random.below(50)),
        }
    }

    /// Whether it is bad enough to use up the retries of a connection once in
    /// thousands of runs: eight times in a row a packet or its answer is lost.
    pub(crate) fn may_break_connections(&self) -> bool {
        self.loss + self.corruption > 30
    }
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Arrives,
    Late,
    Twice,
    Damaged,
    Lost,
    /// There is no way to its destination.
    Cut,
}

/// Arrival, and a number that keeps equals in order.
type Turn = (Instant, u64);

/// Packets under way.
pub(crate) struct Network {
    pub(crate) weather: Weather,
    random: Random,
    flying: BinaryHeap<Reverse<Turn>>,
    frames: BTreeMap<u64, Frame>,
    count: u64,
    /// When the last packet to each address arrives that is in order.
    last: BTreeMap<IpAddr, Instant>,
    /// Addresses that nothing reaches or leaves.
    pub(crate) cut_off: Vec<IpAddr>,
}

impl Network {
    pub(crate) fn new(weather: Weather, random: Random) -> Self {
        Self {
            weather,
            random,
            flying: BinaryHeap::new(),
            frames: BTreeMap::new(),
            count: 0,
            last: BTreeMap::new(),
            cut_off: Vec::new(),
        }
    }

    fn chance(&mut self, per_mille: u64) -> bool {
        self.random.below(1000) < per_mille
    }

    /// Takes a packet on, and says what becomes of it.
    pub(crate) fn send(&mut self, now: Instant, mut frame: Frame) -> Fate {
        let weather = self.weather;
        let ends = [frame.source.ip(), frame.destination];
        if ends.iter().any(|end| self.cut_off.contains(end)) {
            return Fate::Cut;
        }
        if self.chance(weather.loss) {
            return Fate::Lost;
        }
        let mut fate = Fate::Arrives;
        if self.chance(weather.duplication) {
            self.fly(now, frame.clone(), false);
            fate = Fate::Twice;
        }
        if self.chance(weather.congestion) {
            frame.traffic_class |= 3;
        }
        if self.chance(weather.corruption) {
            fate = Fate::Damaged;
            if frame.destination.is_ipv4() {
                // UDP's checksum finds every flipped bit, before the ICRC, which
                // on IPv4 is weak for one who sees no identification, has to.
                return fate;
            }
            let bit = self.random.below(frame.bytes.len() as u64 * 8) as usize;
            if bit / 8 != BTH_CONGESTION {
                frame.bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
        let late = self.chance(weather.reordering);
        self.fly(now, frame, late);
        if late { Fate::Late } else { fate }
    }

    fn fly(&mut self, now: Instant, frame: Frame, late: bool) {
        let weather = self.weather;
        let jitter_ns = self.random.below(weather.jitter.as_nanos() as u64 + 1);
        let mut at = now + weather.latency + Duration::from_nanos(jitter_ns);
        let last = self.last.entry(frame.destination).or_insert(at);
        if late {
            at += weather.latency;
        } else {
            // What was sent first arrives first.
            at = at.max(*last);
            *last = at;
        }
        self.count += 1;
        self.flying.push(Reverse((at, self.count)));
        self.frames.insert(self.count, frame);
    }

    /// When the next packet arrives.
    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        self.flying.peek().map(|Reverse((at, _))| *at)
    }

    /// A packet that has arrived by `now`.
    pub(crate) fn arrived(&mut self, now: Instant) -> Option<Frame> {
        self.next_arrival().filter(|at| *at <= now)?;
        let Reverse((_, number)) = self.flying.pop()?;
        self.frames.remove(&number)
    }
}
