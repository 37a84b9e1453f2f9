//! Expected content of the region of a verified job.

use super::lane::{Command, Operation};
use super::pattern::{self, Expected, Identity, Mismatch};
use super::plan::Plan;
use super::source::Source;

#[derive(Debug)]
pub(super) struct Ledger {
    start: u64,
    unit: usize,
    seed: u64,
    known: Known,
    scratch: Vec<u8>,
}

#[derive(Debug)]
enum Known {
    /// Number of writes to each unit by this run. The content of units never written is unknown.
    Generations(Vec<u32>),
    /// All units were written by an earlier run; `seed` is its seed if known.
    Written { seed: Option<u64>, units: u64 },
}

impl Ledger {
    pub(super) fn new(plan: &Plan) -> Self {
        let job = &plan.job;
        let replayable = job.randseed.is_some() && !job.time_based;
        let known = if job.changes_data() {
            Known::Generations(vec![0; plan.units() as usize])
        } else if job.rw.writes && replayable {
            Known::Generations(replay(plan))
        } else {
            Known::Written {
                seed: job.randseed.map(|_| plan.seed),
                units: plan.units(),
            }
        };
        let unit = job.bs_min as usize;
        Self {
            start: plan.region.start,
            unit,
            seed: plan.seed,
            known,
            scratch: vec![0; unit],
        }
    }

    /// Increments the generation of each unit covered by a write. Calls `load` with the unit's offset in the write and
    /// its content.
    pub(super) fn write(&mut self, operation: Operation, mut load: impl FnMut(usize, &[u8])) {
        let Known::Generations(generations) = &mut self.known else {
            unreachable!("a job that writes knows what it has written");
        };
        for (index, offset) in units(self.start, self.unit, operation) {
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

    /// Checks the units of a read, except units never written, and returns the number checked. Calls `bad` for each
    /// mismatch.
    pub(super) fn check(
        &mut self,
        operation: Operation,
        mut unload: impl FnMut(usize, &mut [u8]),
        mut bad: impl FnMut(Mismatch),
    ) -> u64 {
        let mut checked = 0;
        for (index, offset) in units(self.start, self.unit, operation) {
            let expected = match &self.known {
                Known::Generations(generations) if generations[index] == 0 => continue,
                Known::Generations(generations) => Expected {
                    offset,
                    generation: Some(generations[index]),
                    seed: Some(self.seed),
                },
                Known::Written { seed, .. } => Expected {
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

    /// Returns reads of at most `length` bytes that cover all units with known content.
    pub(super) fn reads(&self, length: u64) -> Reads {
        let written = match &self.known {
            Known::Generations(generations) => generations
                .iter()
                .map(|&generation| generation > 0)
                .collect(),
            Known::Written { units, .. } => vec![true; *units as usize],
        };
        Reads {
            start: self.start,
            unit: self.unit as u64,
            written,
            most: (length / self.unit as u64) as usize,
            at: 0,
        }
    }
}

fn units(start: u64, unit: usize, operation: Operation) -> impl Iterator<Item = (usize, u64)> {
    let unit = unit as u64;
    let first = (operation.offset - start) / unit;
    let count = u64::from(operation.length) / unit;
    (first..first + count).map(move |index| (index as usize, start + index * unit))
}

fn replay(plan: &Plan) -> Vec<u32> {
    let mut generations = vec![0u32; plan.units() as usize];
    let writes = Source::new(plan).filter(|operation| operation.command == Command::Write);
    for operation in writes {
        for (index, _) in units(plan.region.start, plan.job.bs_min as usize, operation) {
            generations[index] = generations[index].wrapping_add(1).max(1);
        }
    }
    generations
}

#[derive(Debug)]
pub(super) struct Reads {
    start: u64,
    unit: u64,
    written: Vec<bool>,
    /// Maximum number of units of a read.
    most: usize,
    at: usize,
}

impl Iterator for Reads {
    type Item = Operation;

    fn next(&mut self) -> Option<Operation> {
        let from = self.at
            + self.written[self.at..]
                .iter()
                .position(|&written| written)?;
        let run = self.written[from..].iter().take(self.most);
        let units = run.take_while(|&&written| written).count();
        self.at = from + units;
        Some(Operation {
            command: Command::Read,
            offset: self.start + from as u64 * self.unit,
            length: (units as u64 * self.unit) as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::Job;
    use super::super::lane::Format;
    use super::super::plan::plans;
    use super::*;

    fn plan(keys: &[(&str, &str)]) -> Plan {
        let mut job = Job::new("j");
        for (key, value) in keys {
            job.set(key, Some(value)).unwrap();
        }
        let format = Format {
            block_bytes: 512,
            blocks: 256,
            transfer_max: 131_072,
        };
        plans(&[job], format).unwrap().remove(0)
    }

    fn operation(command: Command, offset: u64, length: u32) -> Operation {
        Operation {
            command,
            offset,
            length,
        }
    }

    #[test]
    fn what_was_written_twice_is_the_second() {
        let keys = [
            ("rw", "write"),
            ("bs", "512"),
            ("offset", "8k"),
            ("size", "4k"),
            ("verify", "crc32c"),
        ];
        let mut ledger = Ledger::new(&plan(&keys));
        let mut disk = vec![0; 1024];
        let write = operation(Command::Write, 9216, 1024);
        ledger.write(write, |at, unit| disk[at..at + 512].copy_from_slice(unit));
        let first = disk.clone();
        ledger.write(write, |at, unit| disk[at..at + 512].copy_from_slice(unit));
        let mut faults = |disk: &[u8]| {
            let mut bad = Vec::new();
            let read = operation(Command::Read, 8704, 1536);
            let checked = ledger.check(
                read,
                |at, unit| unit.copy_from_slice(&disk[at - 512..at]),
                |mismatch| bad.push(mismatch.to_string()),
            );
            // The read covers three units, and the first was never written.
            assert_eq!(checked, 2);
            bad
        };
        assert_eq!(faults(&disk), [""; 0]);
        let stale = faults(&first);
        assert_eq!(stale.len(), 2);
        assert!(
            stale[0].contains("offset 9216: expected generation 2"),
            "{}",
            stale[0]
        );
        let reads: Vec<_> = ledger.reads(512).map(|r| (r.offset, r.length)).collect();
        assert_eq!(reads, [(9216, 512), (9728, 512)]);
    }

    #[test]
    fn a_seed_gives_what_an_earlier_run_wrote() {
        let keys = [
            ("rw", "randwrite"),
            ("bs", "4k"),
            ("io_size", "32k"),
            ("verify", "crc32c"),
            ("randseed", "7"),
        ];
        let written: Vec<_> = Source::new(&plan(&keys)).map(|o| o.offset).collect();
        let mut again = keys.to_vec();
        again.push(("verify_only", "1"));
        let ledger = Ledger::new(&plan(&again));
        let mut read: Vec<_> = ledger.reads(4096).map(|o| o.offset).collect();
        read.sort_unstable();
        let mut expected = written;
        expected.sort_unstable();
        assert_eq!((read.len(), read), (8, expected));
    }
}
