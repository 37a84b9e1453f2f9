//! Numbers written by one thread and read by others, without locks or read-modify-write.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(amount),
            Ordering::Relaxed,
        );
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters by status code, searched linearly: too slow for every I/O. Codes after the first
/// `PLACES` share a counter.
#[derive(Debug)]
pub struct CodeCounts<const PLACES: usize> {
    places: [CodeCount; PLACES],
    others: Counter,
}

#[derive(Debug, Default)]
struct CodeCount {
    /// Code plus 1; 0 means unused.
    code: AtomicU32,
    count: Counter,
}

impl<const PLACES: usize> Default for CodeCounts<PLACES> {
    fn default() -> Self {
        Self {
            places: std::array::from_fn(|_| CodeCount::default()),
            others: Counter::default(),
        }
    }
}

impl<const PLACES: usize> CodeCounts<PLACES> {
    pub fn add(&self, code: u16) {
        let tag = u32::from(code) + 1;
        for place in &self.places {
            let found = place.code.load(Ordering::Relaxed);
            if found == 0 {
                place.code.store(tag, Ordering::Relaxed);
            }
            if found == 0 || found == tag {
                return place.count.add(1);
            }
        }
        self.others.add(1);
    }

    pub fn each(&self) -> impl Iterator<Item = (Option<u16>, u64)> {
        let known = self.places.iter().filter_map(|place| {
            let code = place.code.load(Ordering::Relaxed).checked_sub(1)?;
            Some((Some(code as u16), place.count.get()))
        });
        let others = Some((None, self.others.get())).filter(|(_, count)| *count > 0);
        known.chain(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_without_a_place_are_counted_together() {
        let counts = CodeCounts::<2>::default();
        for code in [0, 7, 7, 9, 0, u16::MAX] {
            counts.add(code);
        }
        let each: Vec<_> = counts.each().collect();
        assert_eq!(each, [(Some(0), 2), (Some(7), 2), (None, 2)]);
    }

    #[test]
    fn nothing_counted_is_nothing_reported() {
        assert_eq!(CodeCounts::<2>::default().each().count(), 0);
    }
}
