use fastrand::Rng;

use super::lane::{Direction, Operation};
use super::plan::Plan;
use super::random::{Shuffle, mix};

#[derive(Debug)]
pub(super) struct Source<'a> {
    plan: &'a Plan,
    random: Rng,
    left: u64,
    places: Places,
}

#[derive(Debug)]
enum Places {
    /// Ascending order, with the next unit of each direction.
    Sequential([u64; 2]),
    /// Random order. Offsets may repeat.
    Anywhere,
    /// Random order. An offset repeats only after all offsets were used.
    Each { order: Shuffle, pass: u64 },
}

impl<'a> Source<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        let places = if !plan.job.rw.random {
            Places::Sequential([0; 2])
        } else if plan.job.norandommap {
            Places::Anywhere
        } else {
            Places::Each {
                order: Shuffle::new(plan.units(), plan.seed),
                pass: 0,
            }
        };
        Self {
            plan,
            random: Rng::with_seed(plan.seed),
            left: plan.amount(),
            places,
        }
    }

    fn direction(&mut self) -> Direction {
        let rw = self.plan.job.rw;
        let read = if rw.reads && rw.writes {
            self.random.u8(..100) < self.plan.job.rwmixread
        } else {
            rw.reads
        };
        if read {
            Direction::Read
        } else {
            Direction::Write
        }
    }

    fn units_needed(&mut self) -> u64 {
        match self.plan.job.bs_max / self.plan.job.bs_min {
            1 => 1,
            most => self.random.u64(1..=most),
        }
    }

    fn place(&mut self, direction: Direction) -> u64 {
        let units = self.plan.units();
        match &mut self.places {
            Places::Sequential(next) => next[direction as usize] % units,
            Places::Anywhere => self.random.u64(..units),
            Places::Each { order, pass } => order.next().unwrap_or_else(|| {
                *pass += 1;
                *order = Shuffle::new(units, self.plan.seed ^ mix(*pass));
                order.next().expect("a region has at least one unit")
            }),
        }
    }
}

impl Iterator for Source<'_> {
    type Item = Operation;

    fn next(&mut self) -> Option<Operation> {
        if self.left == 0 && !self.plan.job.time_based {
            return None;
        }
        let direction = self.direction();
        let unit = self.plan.job.bs_min;
        let units = self.units_needed();
        let start = self.place(direction);
        let units = units.min(self.plan.units() - start);
        if let Places::Sequential(next) = &mut self.places {
            next[direction as usize] = start + units;
        }
        self.left = self.left.saturating_sub(units * unit);
        Some(Operation {
            direction,
            offset: start * unit,
            length: (units * unit) as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::Job;
    use super::super::lane::Format;
    use super::super::plan::plans;
    use super::*;

    fn all(keys: &[(&str, &str)]) -> Vec<Operation> {
        let format = Format {
            block_bytes: 512,
            blocks: 2048,
            transfer_max: 131_072,
        };
        let plans = plans(&Job::with(keys).unwrap(), format).unwrap();
        Source::new(&plans[0]).collect()
    }

    #[test]
    fn a_sequence_goes_from_start_to_end_in_each_pass() {
        let operations = all(&[("bs", "4k"), ("size", "16k"), ("loops", "2")]);
        let offsets: Vec<_> = operations.iter().map(|o| o.offset).collect();
        assert_eq!(offsets, [0, 4096, 8192, 12288, 0, 4096, 8192, 12288]);
        assert!(
            operations
                .iter()
                .all(|o| o.direction == Direction::Read && o.length == 4096)
        );
    }

    #[test]
    fn random_places_are_each_had_once() {
        let operations = all(&[("rw", "randrw"), ("bs", "4k")]);
        let mut offsets: Vec<_> = operations.iter().map(|o| o.offset).collect();
        assert!(!offsets.is_sorted());
        offsets.sort_unstable();
        assert_eq!(offsets, (0..256).map(|n| n * 4096).collect::<Vec<_>>());
    }

    #[test]
    fn mixes_and_sizes_stay_in_their_bounds() {
        let operations = all(&[
            ("rw", "randrw"),
            ("bsrange", "512-8k"),
            ("rwmixread", "75"),
            ("size", "512k"),
            ("loops", "8"),
        ]);
        let reads = operations
            .iter()
            .filter(|o| o.direction == Direction::Read)
            .count();
        let share = reads * 100 / operations.len();
        assert!((60..90).contains(&share), "{share} % reads");
        for o in &operations {
            assert!(o.offset + u64::from(o.length) <= 524_288);
            assert!(o.length.is_multiple_of(512) && o.length <= 8192);
        }
        assert!(operations.iter().any(|o| o.length > 512));
    }
}
