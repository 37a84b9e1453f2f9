//! A network on a simulated clock that loses, repeats, delays, reorders and damages packets,
//! all by one seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Add;
use std::time::Duration;

use crate::Random;

/// How bad the network is, each in packets of a thousand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weather {
    /// Lost.
    pub loss: u64,
    /// Delivered twice.
    pub duplication: u64,
    /// Delivered with one bit flipped, or lost if the network's checksum finds that.
    pub corruption: u64,
    /// Delivered after packets that were sent later.
    pub reordering: u64,
    /// Marked as congested.
    pub congestion: u64,
    /// The time that each packet takes.
    pub latency: Duration,
    /// The time that some packets take beyond that, at most.
    pub jitter: Duration,
}

impl Weather {
    /// Nothing is lost, and everything is in order.
    pub const FAIR: Self = Self {
        loss: 0,
        duplication: 0,
        corruption: 0,
        reordering: 0,
        congestion: 0,
        latency: Duration::from_micros(20),
        jitter: Duration::ZERO,
    };

    /// Up to 10 % of loss, and some of everything else.
    pub fn foul(random: &mut Random) -> Self {
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
    #[must_use]
    pub fn may_break_connections(&self) -> bool {
        self.loss + self.corruption > 30
    }
}

/// What happens to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Arrives,
    /// It arrives after packets that were sent later.
    Late,
    /// It arrives twice.
    Twice,
    /// It arrives damaged, or does not for that reason.
    Damaged,
    /// It does not arrive.
    Lost,
    /// The network has no way to its destination.
    Cut,
}

/// What the network carries.
pub trait Packet: Clone {
    /// Names an end.
    type End: Ord + Clone;

    /// Source and destination.
    fn ends(&self) -> (Self::End, Self::End);

    /// Its length in bytes.
    fn length(&self) -> usize;

    /// Flips a bit. False: a checksum below finds that, and the packet is lost.
    fn flip(&mut self, bit: usize) -> bool;

    /// Marks it as having met congestion.
    fn mark_congested(&mut self) {}
}

/// Packets under way, on a clock of type `T`.
#[derive(Debug)]
pub struct Network<T, P: Packet> {
    /// How bad it is now.
    pub weather: Weather,
    /// Ends that no packet reaches or leaves.
    pub cut_off: Vec<P::End>,
    random: Random,
    /// Arrivals, each with a number that keeps equals in order.
    arrivals: BinaryHeap<Reverse<(T, u64)>>,
    packets: BTreeMap<u64, P>,
    count: u64,
    /// When the last packet to each end arrives that is in order.
    last: BTreeMap<P::End, T>,
}

impl<T: Copy + Ord + Add<Duration, Output = T>, P: Packet> Network<T, P> {
    /// An empty network.
    #[must_use]
    pub fn new(weather: Weather, random: Random) -> Self {
        Self {
            weather,
            cut_off: Vec::new(),
            random,
            arrivals: BinaryHeap::new(),
            packets: BTreeMap::new(),
            count: 0,
            last: BTreeMap::new(),
        }
    }

    /// Takes a packet, and returns what will happen to it.
    pub fn send(&mut self, now: T, mut packet: P) -> Fate {
        let weather = self.weather;
        let (source, destination) = packet.ends();
        if self.cut_off.contains(&source) || self.cut_off.contains(&destination) {
            return Fate::Cut;
        }
        if self.random.chance(weather.loss) {
            return Fate::Lost;
        }
        let mut fate = Fate::Arrives;
        if self.random.chance(weather.duplication) {
            self.queue(now, packet.clone(), false);
            fate = Fate::Twice;
        }
        if self.random.chance(weather.congestion) {
            packet.mark_congested();
        }
        if self.random.chance(weather.corruption) {
            fate = Fate::Damaged;
            let bit = self.random.below(packet.length() as u64 * 8) as usize;
            if !packet.flip(bit) {
                return fate;
            }
        }
        let late = self.random.chance(weather.reordering);
        self.queue(now, packet, late);
        if late { Fate::Late } else { fate }
    }

    fn queue(&mut self, now: T, packet: P, late: bool) {
        let weather = self.weather;
        let jitter_ns = self.random.below(weather.jitter.as_nanos() as u64 + 1);
        let mut at = now + weather.latency + Duration::from_nanos(jitter_ns);
        let last = self.last.entry(packet.ends().1).or_insert(at);
        if late {
            at = at + weather.latency;
        } else {
            // What was sent first arrives first.
            at = at.max(*last);
            *last = at;
        }
        self.count += 1;
        self.arrivals.push(Reverse((at, self.count)));
        self.packets.insert(self.count, packet);
    }

    /// When the next packet arrives.
    #[must_use]
    pub fn next_arrival(&self) -> Option<T> {
        self.arrivals.peek().map(|Reverse((at, _))| *at)
    }

    /// A packet that has arrived by `now`.
    pub fn receive(&mut self, now: T) -> Option<P> {
        self.next_arrival().filter(|at| *at <= now)?;
        let Reverse((_, number)) = self.arrivals.pop()?;
        self.packets.remove(&number)
    }
}

/// Bytes on their way from one of two ends to the other.
#[derive(Debug, Clone)]
pub struct Datagram {
    /// The end that they go to: 0 or 1.
    pub to: usize,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Packet for Datagram {
    type End = usize;

    fn ends(&self) -> (usize, usize) {
        (1 - self.to, self.to)
    }

    fn length(&self) -> usize {
        self.bytes.len()
    }

    fn flip(&mut self, bit: usize) -> bool {
        self.bytes[bit / 8] ^= 1 << (bit % 8);
        true
    }
}
