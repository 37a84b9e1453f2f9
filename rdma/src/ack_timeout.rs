use std::time::Duration;

const UNIT_NS: u64 = 4_096;
const EXPONENT_MAX: u8 = 31;

/// Local ACK timeout of a queue pair: 4.096 us times a power of two (IBTA 9.7.6.1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// Returns the shortest timeout of at least `time`, or else the longest.
    #[must_use]
    pub fn at_least(time: Duration) -> Self {
        let exponents = 1..EXPONENT_MAX;
        let ns = |exponent: &u8| u128::from(UNIT_NS << exponent);
        let shortest = exponents.into_iter().find(|it| ns(it) >= time.as_nanos());
        Self(shortest.unwrap_or(EXPONENT_MAX))
    }

    /// Returns the exponent, 1 to 31.
    #[must_use]
    pub fn exponent(self) -> u8 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_at_least_as_long_as_asked_for() {
        let exponent = |ns| AckTimeout::at_least(Duration::from_nanos(ns)).exponent();
        assert_eq!([exponent(0), exponent(8_192), exponent(8_193)], [1, 1, 2]);
        assert_eq!(exponent(67_108_864), 14);
        assert_eq!(exponent(u64::MAX), EXPONENT_MAX);
    }
}
