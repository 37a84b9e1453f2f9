//! Expected content of a verified job's region.

use super::lane::{Direction, Operation};
use super::pattern::{self, Expected, Identity};
use super::plan::Plan;

#[derive(Debug)]
pub(super) struct Ledger {
    unit: usize,
    seed: u64,
    known: Known,
    scratch: Vec<u8>,
}

#[derive(Debug)]
enum Known {
    /// Number of writes to each unit in this run; 0 if the unit's content is unknown.
    Generations(Vec<u32>),
    /// An earlier run has written all units. The value is that run's seed, if known.
    Written(Option<u64>),
}

impl Ledger {
    pub(super) fn new(plan: &Plan) -> Self {
        let unit = plan.job.bs_min as usize;
        Self {
            unit,
            seed: plan.seed,
            known: if plan.job.rw.writes {
                Known::Generations(vec![0; plan.units() as usize])
            } else {
                Known::Written(plan.job.randseed)
            },
            scratch: vec![0; unit],
        }
    }

    pub(super) fn write(&mut self, operation: Operation, mut load: impl FnMut(usize, &[u8])) {
        let Known::Generations(generations) = &mut self.known else {
            unreachable!("a job that writes knows what it has written");
        };
        for (index, offset) in units(self.unit, operation) {
            let generation = &mut generations[index];
            *generation = generation.wrapping_add(1).max(1);
            let identity = Identity {
                offset,
                generation: *generation,
                seed: self.seed,
            };
            pattern::fill(&mut self.scratch, identity);
            load((offset - operation.offset) as usize, &self.scratch);
        }
    }

    pub(super) fn check(
        &mut self,
        operation: Operation,
        mut unload: impl FnMut(usize, &mut [u8]),
        mut bad: impl FnMut(String),
    ) -> u64 {
        let mut checked = 0;
        for (index, offset) in units(self.unit, operation) {
            let expected = match &self.known {
                Known::Generations(generations) if generations[index] == 0 => continue,
                Known::Generations(generations) => Expected {
                    offset,
                    generation: Some(generations[index]),
                    seed: Some(self.seed),
                },
                Known::Written(seed) => Expected {
                    offset,
                    generation: None,
                    seed: *seed,
                },
            };
            unload((offset - operation.offset) as usize, &mut self.scratch);
            checked += 1;
            if let Err(mismatch) = pattern::check(&self.scratch, expected) {
                bad(mismatch);
            }
        }
        checked
    }

    pub(super) fn reads(&self, length: u64) -> impl Iterator<Item = Operation> + use<> {
        let Known::Generations(generations) = &self.known else {
            unreachable!("a job that only reads checks each read");
        };
        let written: Vec<bool> = generations.iter().map(|&count| count > 0).collect();
        let unit = self.unit as u64;
        let most = (length / unit) as usize;
        let mut at = 0;
        std::iter::from_fn(move || {
            let from = at + written[at..].iter().position(|&written| written)?;
            let run = written[from..].iter().take(most);
            let units = run.take_while(|&&written| written).count();
            at = from + units;
            Some(Operation {
                direction: Direction::Read,
                offset: from as u64 * unit,
                length: (units as u64 * unit) as u32,
            })
        })
    }
}

fn units(unit: usize, operation: Operation) -> impl Iterator<Item = (usize, u64)> {
    let unit = unit as u64;
    let first = operation.offset / unit;
    let count = u64::from(operation.length) / unit;
    (first..first + count).map(move |index| (index as usize, index * unit))
}

#[cfg(test)]
mod tests {
    use super::super::job::Job;
    use super::super::lane::Format;
    use super::super::plan::plans;
    use super::*;

    #[test]
    fn what_was_written_twice_is_the_second() {
        let keys = [("rw", "write"), ("bsrange", "512-1k"), ("verify", "crc32c")];
        let format = Format {
            block_bytes: 512,
            blocks: 256,
            transfer_max: 131_072,
        };
        let plans = plans(&Job::with(&keys).unwrap(), format).unwrap();
        let mut ledger = Ledger::new(&plans[0]);
        let operation = |direction, offset, length| Operation {
            direction,
            offset,
            length,
        };
        let mut disk = vec![0; 1024];
        let write = operation(Direction::Write, 9216, 1024);
        ledger.write(write, |at, unit| disk[at..at + 512].copy_from_slice(unit));
        let first = disk.clone();
        ledger.write(write, |at, unit| disk[at..at + 512].copy_from_slice(unit));
        let mut faults = |disk: &[u8]| {
            let mut bad = Vec::new();
            let checked = ledger.check(
                operation(Direction::Read, 8704, 1536),
                |at, unit| unit.copy_from_slice(&disk[at - 512..at]),
                |mismatch| bad.push(mismatch),
            );
            assert_eq!(checked, 2);
            bad
        };
        assert_eq!(faults(&disk), [""; 0]);
        let stale = faults(&first);
        assert_eq!(stale.len(), 2);
        let expected = "offset 9216: expected generation 2";
        assert!(stale[0].contains(expected), "{}", stale[0]);
        ledger.write(operation(Direction::Write, 10240, 512), |_, _| {});
        ledger.write(operation(Direction::Write, 0, 512), |_, _| {});
        let reads = ledger.reads(1024);
        assert_eq!(
            reads.map(|r| (r.offset, r.length)).collect::<Vec<_>>(),
            [(0, 512), (9216, 1024), (10240, 512)]
        );
    }
}
