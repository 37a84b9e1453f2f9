use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::Mapping;

use super::{BLOCK_BYTES, Completions, Habits, Lie, Medium, Memory, Operation, Work};

const STORM_MAX: u64 = 40;

const LATE_MAX_US: u64 = 2_000_000;

#[derive(Debug)]
pub(super) struct SimulatedState {
    pub(super) medium: Medium,
    pub(super) chance: Chance,
    pub(super) habits: Habits,
    pub(super) held: [bool; 4],
    pub(super) cancels: bool,
    pub(super) failures: [(i32, u32); 4],
    pub(super) storm: u64,
    pub(super) pending: Vec<Pending>,
    pub(super) submitted: u64,
}

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) work: Work,
    pub(super) waiter: Option<(Arc<Completions>, u64)>,
    pub(super) since: Instant,
    pub(super) due: Option<Instant>,
    pub(super) number: u64,
    pub(super) writes_before: u64,
}

impl SimulatedState {
    pub(super) fn run(&mut self, now: Instant) {
        loop {
            let due = self.pending.iter().enumerate().filter_map(|(at, pending)| {
                let due = pending.due.filter(|due| *due <= now)?;
                Some((due, pending.number, at))
            });
            let Some((due, _, at)) = due.min() else {
                return;
            };
            let pending = self.pending.remove(at);
            let result = self.carry_out(&pending, due);
            if let Some((done, tag)) = pending.waiter {
                done.push(tag, result);
            }
        }
    }

    pub(super) fn delay(&mut self) -> Duration {
        let Range { start, end } = self.habits.delay;
        let spread = end.saturating_sub(start).as_nanos() as u64;
        start + Duration::from_nanos(self.chance.below(spread + 1))
    }

    fn carry_out(&mut self, pending: &Pending, now: Instant) -> Result<u32, i32> {
        if pending.waiter.is_some() {
            self.refusal(pending.work.operation())?;
        }
        match &pending.work {
            Work::Read { offset, memory } => self.read(*offset as usize, memory),
            Work::Write {
                offset,
                memory,
                durable,
            } => self.write(*offset as usize, memory, *durable, now),
            Work::Flush => self.flush(pending.writes_before),
            Work::Zero { offset, length } => {
                let zeroes = vec![0; self.within(*offset as usize, *length as usize)];
                self.medium.write(*offset as usize, &zeroes, false);
                Ok(0)
            }
        }
    }

    fn refusal(&mut self, operation: Operation) -> Result<(), i32> {
        let (errno, left) = &mut self.failures[operation as usize];
        if *left > 0 {
            *left -= 1;
            return Err(*errno);
        }
        if self.chance.per_mille(self.habits.again) {
            self.storm = 1 + self.chance.below(STORM_MAX);
        }
        if self.storm > 0 {
            self.storm -= 1;
            return Err(libc::EAGAIN);
        }
        let writes = matches!(operation, Operation::Write | Operation::Zero);
        if writes && self.chance.per_mille(self.habits.no_space) {
            return Err(libc::ENOSPC);
        }
        Ok(())
    }

    fn within(&self, offset: usize, length: usize) -> usize {
        length.min(self.medium.len().saturating_sub(offset))
    }

    fn moved(&mut self, length: usize) -> usize {
        let blocks = (length / BLOCK_BYTES) as u64;
        if blocks > 1 && self.chance.per_mille(self.habits.short) {
            return (1 + self.chance.below(blocks - 1)) as usize * BLOCK_BYTES;
        }
        length
    }

    fn lies(&mut self, lie: Lie) -> bool {
        let (chosen, often) = self.habits.lie.unwrap_or((lie, 0));
        chosen == lie && self.chance.per_mille(often)
    }

    fn read(&mut self, offset: usize, memory: &Memory) -> Result<u32, i32> {
        if self.chance.per_mille(self.habits.error) {
            return Err(libc::EIO);
        }
        let length = self.within(offset, memory.length);
        let length = self.moved(length);
        let mut bytes = self.medium.read(offset, length).to_vec();
        if self.lies(Lie::OldRead) {
            bytes.copy_from_slice(self.medium.stable(offset, length));
        }
        if self.lies(Lie::TornRead) {
            let half = length / 2;
            bytes[half..].copy_from_slice(self.medium.stable(offset + half, length - half));
        }
        memory.mapping.write(memory.at, &bytes);
        Ok(length as u32)
    }

    fn write(
        &mut self,
        mut offset: usize,
        memory: &Memory,
        durable: bool,
        now: Instant,
    ) -> Result<u32, i32> {
        let length = self.within(offset, memory.length);
        if length == 0 {
            return Err(libc::ENOSPC);
        }
        let length = self.moved(length);
        let mut bytes = vec![0; length];
        memory.mapping.read(memory.at, &mut bytes);
        if self.chance.per_mille(self.habits.error) {
            let blocks = (length / BLOCK_BYTES) as u64;
            let written = self.chance.below(blocks + 1) as usize * BLOCK_BYTES;
            self.medium.write(offset, &bytes[..written], false);
            return Err(libc::EIO);
        }
        if self.lies(Lie::LostWrite) {
            return Ok(length as u32);
        }
        if self.lies(Lie::TornWrite) {
            let half = length / 2;
            bytes[half..].copy_from_slice(self.medium.read(offset + half, length - half));
        }
        if self.lies(Lie::MisplacedWrite) {
            let places = (self.medium.len() - length) / BLOCK_BYTES;
            offset = self.chance.below(places as u64 + 1) as usize * BLOCK_BYTES;
        }
        self.medium.write(offset, &bytes, durable);
        if self.lies(Lie::LateWrite) {
            self.repeat(offset, &bytes, now);
        }
        Ok(length as u32)
    }

    fn repeat(&mut self, offset: usize, bytes: &[u8], now: Instant) {
        let length = bytes.len();
        let mapping = Arc::new(Mapping::anonymous(length).expect("there is memory"));
        mapping.write(0, bytes);
        let memory = Memory {
            mapping,
            at: 0,
            length,
        };
        let later = Duration::from_micros(self.chance.below(LATE_MAX_US));
        self.submitted += 1;
        self.pending.push(Pending {
            work: Work::Write {
                offset: offset as u64,
                memory,
                durable: false,
            },
            waiter: None,
            since: now,
            due: Some(now + later),
            number: self.submitted,
            writes_before: 0,
        });
    }

    pub(super) fn flush(&mut self, upto: u64) -> Result<u32, i32> {
        let errors = self.habits.flush_error.max(self.habits.error);
        if self.chance.per_mille(errors) {
            match self.chance.below(3) {
                0 => self.medium.flush(upto),
                1 => self.medium.drop_unflushed(upto),
                _ => {}
            }
            return Err(libc::EIO);
        }
        if !self.lies(Lie::EmptyFlush) {
            self.medium.flush(upto);
        }
        Ok(0)
    }

    pub(super) fn cut_off(&mut self, work: &Work) {
        let Work::Write { offset, memory, .. } = work else {
            return;
        };
        let length = self.within(*offset as usize, memory.length);
        for at in (0..length).step_by(BLOCK_BYTES) {
            let mut block = [0; BLOCK_BYTES];
            memory.mapping.read(memory.at + at, &mut block);
            if self.chance.below(2) == 0 {
                self.medium.write(*offset as usize + at, &block, false);
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Chance(fastrand::Rng);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0.u64(..bound)
    }

    pub(super) fn per_mille(&mut self, of_a_thousand: u64) -> bool {
        of_a_thousand > 0 && self.below(1000) < of_a_thousand
    }
}
