//! Fast, reproducible random numbers, not for security.

pub use fastrand::Rng;

/// Returns a generator with a seed from the operating system.
#[must_use]
pub fn fresh() -> Rng {
    Rng::with_seed(fresh_seed())
}

pub(super) fn fresh_seed() -> u64 {
    getrandom::u64().expect("the system has random numbers")
}

#[must_use]
pub(super) fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Pseudorandom permutation of the numbers below `limit`, in constant memory. A Feistel network
/// permutes the numbers below a power of four; a result not below `limit` is permuted again.
#[derive(Debug, Clone)]
pub(super) struct Shuffle {
    limit: u64,
    half_bits: u32,
    keys: [u64; 4],
    next: u64,
}

impl Shuffle {
    #[must_use]
    pub(super) fn new(limit: u64, seed: u64) -> Self {
        let bits = 64 - limit.saturating_sub(1).leading_zeros();
        let mut random = Rng::with_seed(seed);
        Self {
            limit,
            half_bits: bits.div_ceil(2).max(1),
            keys: std::array::from_fn(|_| random.u64(..)),
            next: 0,
        }
    }

    fn scatter(&self, number: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (mix(right ^ key) & mask));
        }
        left << self.half_bits | right
    }
}

impl Iterator for Shuffle {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.next == self.limit {
            return None;
        }
        let mut number = self.scatter(self.next);
        while number >= self.limit {
            number = self.scatter(number);
        }
        self.next += 1;
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_has_each_number_once() {
        for limit in [0, 1, 2, 3, 5, 64, 1000, 4097] {
            let mut all: Vec<u64> = Shuffle::new(limit, 7).collect();
            all.sort_unstable();
            assert_eq!(all, (0..limit).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_seed_is_an_order() {
        let order = |seed| Shuffle::new(1000, seed).collect::<Vec<_>>();
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        assert_ne!(order(1), (0..1000).collect::<Vec<_>>());
    }
}
