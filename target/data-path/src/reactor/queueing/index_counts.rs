//! Counters by index with constant-time lookup.

#[derive(Debug, Default)]
pub(in crate::reactor) struct IndexCounts {
    counts: Vec<u32>,
}

impl IndexCounts {
    pub(in crate::reactor) fn add(&mut self, number: usize) {
        if self.counts.len() <= number {
            self.counts.resize(number + 1, 0);
        }
        self.counts[number] += 1;
    }

    pub(in crate::reactor) fn take(&mut self, number: usize) {
        self.counts[number] -= 1;
    }

    #[inline]
    pub(in crate::reactor) fn has(&self, number: usize) -> bool {
        self.counts.get(number).is_some_and(|&count| count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_its_own() {
        let mut counts = IndexCounts::default();
        assert!(!counts.has(7));
        counts.add(7);
        counts.add(7);
        counts.add(2);
        counts.take(7);
        assert_eq!(
            [1, 2, 7, 8].map(|number| counts.has(number)),
            [false, true, true, false]
        );
        counts.take(7);
        assert!(!counts.has(7) && counts.has(2));
    }
}
