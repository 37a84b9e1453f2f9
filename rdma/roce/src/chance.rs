//! Numbers that a peer must not foresee, and that a simulation must.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_rdma::entropy;
use cairn_roce_proto::cm::Draw;

/// Where such numbers come from. Clones draw from the same source.
#[derive(Debug, Clone, Default)]
pub struct Chance {
    /// `None` is the operating system's generator.
    seeded: Option<Arc<AtomicU64>>,
}

impl Chance {
    /// The same numbers for the same seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self {
            seeded: Some(Arc::new(AtomicU64::new(seed))),
        }
    }

    /// The same source, as a function.
    #[must_use]
    pub fn to_draw(&self) -> Draw {
        let chance = self.clone();
        Box::new(move || chance.draw())
    }

    /// The next number.
    #[must_use]
    pub fn draw(&self) -> u64 {
        match &self.seeded {
            None => entropy::draw(),
            // SplitMix64.
            Some(state) => {
                const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
                let mut z = state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
                z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                z ^ (z >> 31)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_all_there_is_to_it() {
        let (one, other) = (Chance::seeded(7), Chance::seeded(7));
        let drawn: Vec<_> = (0..4).map(|_| one.draw()).collect();
        assert_eq!(drawn, (0..4).map(|_| other.draw()).collect::<Vec<_>>());
        assert_ne!(drawn[0], drawn[1]);
        assert_ne!(Chance::default().draw(), Chance::default().draw());
    }
}
