//! A network on a fake clock that loses, repeats, delays, reorders and damages
//! packets, all by one seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use cairn_roce_proto::time::Instant;

/// A small generator of chance (xorshift64*), so that a seed is all there is to
/// a run.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut this = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..4 {
            this.next();
        }
        this
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True with a chance of `per_mille` in a thousand.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

/// How bad the network is, each in packets of a thousand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    pub(crate) loss: u64,
    pub(crate) duplication: u64,
    pub(crate) corruption: u64,
    pub(crate) reordering: u64,
    pub(crate) latency: Duration,
    pub(crate) jitter: Duration,
}

impl Weather {
    pub(crate) fn of(random: &mut Random) -> Self {
        let mut bad = |most: u64| {
            if random.chance(300) {
                0
            } else {
                random.below(most + 1)
            }
        };
        Self {
            loss: bad(100),
            duplication: bad(50),
            corruption: bad(30),
            reordering: bad(50),
            latency: Duration::from_micros(5 + random.below(500)),
            jitter: Duration::from_micros(random.below(50)),
        }
    }
}

/// Arrival, a number that keeps equals in order, whom to, and the bytes.
type Flying = (Instant, u64, usize, Vec<u8>);

/// Packets under way between two ends.
pub(crate) struct Network {
    weather: Weather,
    random: Random,
    packets: BinaryHeap<Reverse<Flying>>,
    count: u64,
    last: [Option<Instant>; 2],
}

impl Network {
    pub(crate) fn new(weather: Weather, random: Random) -> Self {
        Self {
            weather,
            random,
            packets: BinaryHeap::new(),
            count: 0,
            last: [None; 2],
        }
    }

    pub(crate) fn send(&mut self, now: Instant, to: usize, packet: &[u8]) {
        let weather = self.weather;
        if self.random.chance(weather.loss) {
            return;
        }
        let copies = 1 + u64::from(self.random.chance(weather.duplication));
        for _ in 0..copies {
            let mut bytes = packet.to_vec();
            if self.random.chance(weather.corruption) {
                let bit = self.random.below(bytes.len() as u64 * 8) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            let jitter = self.random.below(weather.jitter.as_nanos() as u64 + 1);
            let mut at = now + weather.latency + Duration::from_nanos(jitter);
            if self.random.chance(weather.reordering) {
                at += weather.latency;
            } else {
                // Otherwise what was sent first arrives first.
                at = at.max(self.last[to].unwrap_or(at));
                self.last[to] = Some(at);
            }
            self.count += 1;
            self.packets.push(Reverse((at, self.count, to, bytes)));
        }
    }

    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        self.packets.peek().map(|Reverse((at, ..))| *at)
    }

    pub(crate) fn receive(&mut self, now: Instant) -> Option<(usize, Vec<u8>)> {
        let Reverse((at, ..)) = self.packets.peek()?;
        if *at > now {
            return None;
        }
        self.packets
            .pop()
            .map(|Reverse((_, _, to, bytes))| (to, bytes))
    }
}

/// Runs `case` for many seeds, or for `CAIRN_SEED` alone. How many:
/// `CAIRN_SEEDS`, or `default`.
pub(crate) fn for_each_seed(
    test: &str,
    default: u64,
    case: impl Fn(u64) + std::panic::RefUnwindSafe,
) {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|v| v.parse::<u64>().expect(name))
    };
    let seeds = match number("CAIRN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("CAIRN_SEEDS").unwrap_or(default),
    };
    for seed in seeds {
        if std::panic::catch_unwind(|| case(seed)).is_err() {
            panic!("seed {seed} fails: CAIRN_SEED={seed} cargo test -p cairn-roce {test}");
        }
    }
}
