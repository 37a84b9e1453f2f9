//! Random numbers that a seed repeats.

/// Steele, Lea and Flood's SplitMix64: good enough to make test traffic, and
/// the same on every machine.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence that belongs to `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing is below 0");
        self.bits() % bound
    }

    /// Fills `out`.
    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let bits = self.bits().to_le_bytes();
            chunk.copy_from_slice(&bits[..chunk.len()]);
        }
    }

    /// `length` bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut out = vec![0; length];
        self.fill(&mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_itself_and_differs_from_the_next() {
        assert_eq!(Random::new(7).bytes(37), Random::new(7).bytes(37));
        assert_ne!(Random::new(7).bytes(37), Random::new(8).bytes(37));
    }
}
