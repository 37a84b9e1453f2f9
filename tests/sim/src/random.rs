/// Seeded generator of random numbers.
#[derive(Debug, Clone)]
pub struct Random(fastrand::Rng);

impl Random {
    /// Creates a generator. Equal seeds give equal numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub fn bits(&mut self) -> u64 {
        self.0.u64(..)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.u64(..bound)
    }

    /// True with a probability of `per_mille` thousandths.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    pub fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out);
    }

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
