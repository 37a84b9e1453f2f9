//! Counters by index with constant-time lookup.

/// Counters by index. Memory grows with the highest index used.
#[derive(Debug, Default)]
pub(super) struct Tally {
    counts: Vec<u32>,
}

impl Tally {
    pub(super) fn add(&mut self, number: usize) {
        if self.counts.len() <= number {
            self.counts.resize(number + 1, 0);
        }
        self.counts[number] += 1;
    }

    pub(super) fn take(&mut self, number: usize) {
        self.counts[number] -= 1;
    }

    #[inline]
    pub(super) fn has(&self, number: usize) -> bool {
        self.counts.get(number).is_some_and(|&count| count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_its_own() {
        let mut tally = Tally::default();
        assert!(!tally.has(7));
        tally.add(7);
        tally.add(7);
        tally.add(2);
        tally.take(7);
        assert_eq!(
            [1, 2, 7, 8].map(|number| tally.has(number)),
            [false, true, true, false]
        );
        tally.take(7);
        assert!(!tally.has(7) && tally.has(2));
    }
}
