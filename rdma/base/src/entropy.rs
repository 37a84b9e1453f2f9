//! Random numbers: unpredictable in production, seeded in simulations.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Returns 64 random bits of the operating system.
///
/// # Panics
/// The operating system cannot supply random numbers.
#[must_use]
pub fn draw() -> u64 {
    getrandom::u64().unwrap_or_else(|error| panic!("the system has no random numbers: {error}"))
}

/// Source of random numbers. Clones share the generator.
#[derive(Debug, Clone, Default)]
pub struct Entropy {
    source: Source,
}

#[derive(Clone, Default)]
enum Source {
    #[default]
    System,
    Seeded(Arc<Mutex<fastrand::Rng>>),
    Function(Arc<dyn Fn() -> u64 + Send + Sync>),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System => "System",
            Self::Seeded(_) => "Seeded",
            Self::Function(_) => "Function",
        })
    }
}

impl Entropy {
    /// Creates a deterministic source for simulations.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self {
            source: Source::Seeded(Arc::new(Mutex::new(random))),
        }
    }

    /// Creates a source that calls `draw` for each number, for tests.
    #[must_use]
    pub fn of(draw: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self {
            source: Source::Function(Arc::new(draw)),
        }
    }

    /// Returns the next random number.
    #[must_use]
    pub fn draw(&self) -> u64 {
        match &self.source {
            Source::System => draw(),
            Source::Function(draw) => draw(),
            Source::Seeded(random) => random
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .u64(..),
        }
    }

    /// Returns a function that draws from this source.
    #[must_use]
    pub fn to_draw(&self) -> Box<dyn FnMut() -> u64 + Send> {
        let source = self.clone();
        Box::new(move || source.draw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_varies() {
        let drawn: Vec<u64> = (0..128).map(|_| draw()).collect();
        let ever = drawn.iter().fold(0, |bits, number| bits | number);
        let always = drawn.iter().fold(u64::MAX, |bits, number| bits & number);
        assert_eq!((ever, always), (u64::MAX, 0));
    }

    #[test]
    fn a_seed_repeats_itself() {
        let (one, other) = (Entropy::seeded(7), Entropy::seeded(7));
        let drawn: Vec<_> = (0..4).map(|_| one.draw()).collect();
        assert_eq!(drawn, (0..4).map(|_| other.draw()).collect::<Vec<_>>());
        assert_ne!(drawn[0], drawn[1]);
        assert_ne!(Entropy::default().draw(), Entropy::default().draw());
    }
}
