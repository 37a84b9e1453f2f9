//! Simulated network with seeded random faults.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Add;
use std::time::Duration;

use crate::Random;

/// Fault rates in packets per thousand, and latencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weather {
    pub loss: u64,
    pub duplication: u64,
    /// Packets per thousand with a flipped bit.
    pub corruption: u64,
    /// Packets per thousand that arrive after later packets.
    pub reordering: u64,
    /// Packets per thousand that receive a congestion mark.
    pub congestion: u64,
    pub latency: Duration,
    pub jitter: Duration,
}

impl Weather {
    /// No faults, and a fixed latency.
    pub const FAIR: Self = Self {
        loss: 0,
        duplication: 0,
        corruption: 0,
        reordering: 0,
        congestion: 0,
        latency: Duration::from_micros(20),
        jitter: Duration::ZERO,
    };

    /// Returns random fault rates, with a loss of up to 10 %.
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

    /// True if losses may end a connection: eight in succession do.
    #[must_use]
    pub fn may_break_connections(&self) -> bool {
        self.loss + self.corruption > 30
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Arrives,
    Late,
    Twice,
    /// Delivered with a flipped bit, or lost if a checksum detects the flip.
    Damaged,
    Lost,
    /// Not delivered: source or destination is in [`Network::cut_off`].
    Cut,
}

/// Packet that a simulated network can delay, drop, duplicate and deliver.
pub trait Packet: Clone {
    type End: Ord + Clone;

    fn ends(&self) -> (Self::End, Self::End);

    fn length(&self) -> usize;

    /// Flips a bit of the packet. Returns false if a checksum detects the flip.
    fn flip(&mut self, bit: usize) -> bool;

    /// Sets the congestion mark, if packets of this type have one.
    fn mark_congested(&mut self) {}
}

/// Simulated network with its packets in transit. `T` is a point in time.
#[derive(Debug)]
pub struct Network<T, P: Packet> {
    pub weather: Weather,
    /// Disconnected addresses, which neither send nor receive packets.
    pub cut_off: Vec<P::End>,
    random: Random,
    arrivals: BinaryHeap<Reverse<(T, u64)>>,
    packets: BTreeMap<u64, P>,
    count: u64,
    last: BTreeMap<P::End, T>,
}

impl<T: Copy + Ord + Add<Duration, Output = T>, P: Packet> Network<T, P> {
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

    /// Sends a packet; of several faults, returns the last.
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
            at = at.max(*last);
            *last = at;
        }
        self.count += 1;
        self.arrivals.push(Reverse((at, self.count)));
        self.packets.insert(self.count, packet);
    }

    #[must_use]
    pub fn next_arrival(&self) -> Option<T> {
        self.arrivals.peek().map(|Reverse((at, _))| *at)
    }

    pub fn receive(&mut self, now: T) -> Option<P> {
        self.next_arrival().filter(|at| *at <= now)?;
        let Reverse((_, number)) = self.arrivals.pop()?;
        self.packets.remove(&number)
    }
}

/// UDP datagram between the endpoints 0 and 1.
#[derive(Debug, Clone)]
pub struct Datagram {
    pub to: usize,
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
