//! Sequence of a job's commands with offset, direction and size.

use super::job::Direction;
use super::lane::{Command, Operation};
use super::plan::Plan;
use super::random::{Random, Shuffle, mix};

#[derive(Debug)]
pub(super) struct Source {
    plan: Plan,
    random: Random,
    /// Bytes still to transfer, over all passes.
    left: u64,
    places: Places,
    unflushed: u32,
    flush_due: bool,
}

#[derive(Debug)]
enum Places {
    /// Next unit of each direction, in ascending order.
    Sequential([u64; 3]),
    /// Random order; offsets may repeat.
    Anywhere,
    /// Random order that covers each block once in each pass.
    Each { order: Shuffle, pass: u64 },
}

impl Source {
    pub(super) fn new(plan: &Plan) -> Self {
        let places = if !plan.job.rw.random {
            Places::Sequential([0; 3])
        } else if plan.job.norandommap {
            Places::Anywhere
        } else {
            Places::Each {
                order: Shuffle::new(plan.units(), plan.seed),
                pass: 0,
            }
        };
        Self {
            random: Random::new(plan.seed),
            left: plan.amount,
            places,
            unflushed: 0,
            flush_due: false,
            plan: plan.clone(),
        }
    }

    fn direction(&mut self) -> Direction {
        let rw = self.plan.job.rw;
        if rw.trims {
            return Direction::Trim;
        }
        let read = if rw.reads && rw.writes {
            self.random.below(100) < u64::from(self.plan.job.rwmixread)
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
        let job = &self.plan.job;
        let most = job.bs_max / job.bs_min;
        if most == 1 {
            1
        } else {
            1 + self.random.below(most)
        }
    }

    fn place(&mut self, direction: Direction) -> u64 {
        let units = self.plan.units();
        match &mut self.places {
            Places::Sequential(next) => {
                let next = &mut next[direction as usize];
                if *next >= units {
                    *next = 0;
                }
                *next
            }
            Places::Anywhere => self.random.below(units),
            Places::Each { order, pass } => order.next().unwrap_or_else(|| {
                *pass += 1;
                *order = Shuffle::new(units, self.plan.seed ^ mix(*pass));
                order.next().expect("a region has at least one unit")
            }),
        }
    }

    fn count_write(&mut self, direction: Direction) {
        if direction == Direction::Write && self.plan.job.fsync > 0 {
            self.unflushed += 1;
            if self.unflushed == self.plan.job.fsync {
                self.unflushed = 0;
                self.flush_due = true;
            }
        }
    }
}

impl Iterator for Source {
    type Item = Operation;

    /// Returns the next command; `None` after all bytes. A time-based job has no end.
    fn next(&mut self) -> Option<Operation> {
        if self.flush_due {
            self.flush_due = false;
            return Some(FLUSH);
        }
        if self.left == 0 && !self.plan.job.time_based {
            return None;
        }
        let direction = self.direction();
        let unit = self.plan.job.bs_min;
        let units = self.units_needed();
        let start = self.place(direction);
        let length = units.min(self.plan.units() - start) * unit;
        if let Places::Sequential(next) = &mut self.places {
            next[direction as usize] = start + length / unit;
        }
        self.left = self.left.saturating_sub(length);
        self.count_write(direction);
        Some(Operation {
            command: match direction {
                Direction::Read => Command::Read,
                Direction::Write => Command::Write,
                Direction::Trim => Command::Trim,
            },
            offset: self.plan.region.start + start * unit,
            length: length as u32,
        })
    }
}

pub(super) const FLUSH: Operation = Operation {
    command: Command::Flush,
    offset: 0,
    length: 0,
};

#[cfg(test)]
mod tests {
    use super::super::job::Job;
    use super::super::lane::Format;
    use super::super::plan::plans;
    use super::*;

    const FORMAT: Format = Format {
        block_bytes: 512,
        blocks: 2048,
        transfer_max: 131_072,
    };

    fn source(keys: &[(&str, &str)]) -> Source {
        let mut job = Job::new("j");
        for (key, value) in keys {
            job.set(key, Some(value)).unwrap();
        }
        Source::new(&plans(&[job], FORMAT).unwrap()[0])
    }

    fn all(source: Source) -> Vec<Operation> {
        source.collect()
    }

    #[test]
    fn a_sequence_goes_from_start_to_end() {
        let operations = all(source(&[("bs", "4k"), ("offset", "64k"), ("size", "16k")]));
        let offsets: Vec<_> = operations.iter().map(|o| o.offset).collect();
        assert_eq!(offsets, [65_536, 69_632, 73_728, 77_824]);
        assert!(
            operations
                .iter()
                .all(|o| o.command == Command::Read && o.length == 4096)
        );
    }

    #[test]
    fn random_places_are_each_had_once() {
        let mut offsets: Vec<_> = all(source(&[("rw", "randrw"), ("bs", "4k")]))
            .iter()
            .map(|o| o.offset)
            .collect();
        assert!(!offsets.is_sorted());
        offsets.sort_unstable();
        assert_eq!(offsets, (0..256).map(|n| n * 4096).collect::<Vec<_>>());
    }

    #[test]
    fn loops_and_io_size_say_how_much() {
        assert_eq!(
            all(source(&[("bs", "4k"), ("size", "64k"), ("loops", "3")])).len(),
            48
        );
        assert_eq!(
            all(source(&[("bs", "4k"), ("size", "64k"), ("io_size", "8k")])).len(),
            2
        );
    }

    #[test]
    fn mixes_and_sizes_stay_in_their_bounds() {
        let operations = all(source(&[
            ("rw", "randrw"),
            ("bsrange", "512-8k"),
            ("rwmixread", "75"),
            ("offset", "128k"),
            ("size", "512k"),
            ("loops", "8"),
        ]));
        let reads = operations
            .iter()
            .filter(|o| o.command == Command::Read)
            .count();
        let share = reads * 100 / operations.len();
        assert!((60..90).contains(&share), "{share} % reads");
        for o in &operations {
            assert!(o.offset >= 131_072 && o.offset + u64::from(o.length) <= 655_360);
            assert!(o.length.is_multiple_of(512) && o.length <= 8192);
        }
    }

    #[test]
    fn flushes_come_after_so_many_writes() {
        let operations = all(source(&[
            ("rw", "write"),
            ("bs", "4k"),
            ("size", "32k"),
            ("fsync", "3"),
        ]));
        let flushes: Vec<_> = operations
            .iter()
            .enumerate()
            .filter(|(_, o)| o.command == Command::Flush)
            .map(|(at, _)| at)
            .collect();
        assert_eq!(flushes, [3, 7]);
    }
}
