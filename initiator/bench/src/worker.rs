//! Execution of one copy of a job on its lane.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::job::Direction;
use super::lane::{Command, Done, Lane, LaneError, Operation};
use super::ledger::Ledger;
use super::meter::{Meter, Phase};
use super::plan::Plan;
use super::random::Random;
use super::source::{FLUSH, Source};
use super::stats::{JobStats, Times};

/// Interval at which the stop flag is checked while waiting for completions.
const GLANCE: Duration = Duration::from_millis(100);
const LAST_CALL: Duration = Duration::from_secs(5);
/// Maximum number of bad blocks described in the result; further bad blocks are only counted.
const MISMATCHES_MAX: usize = 10;

/// Error that ended a job early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobError {
    /// A command or the connection failed.
    Io(String),
    /// Blocks had unexpected content.
    Verify(String),
}

impl JobError {
    /// Errno in fio's report: EIO or EILSEQ.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Io(_) => 5,
            Self::Verify(_) => 84,
        }
    }
}

impl std::fmt::Display for JobError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Io(why) | Self::Verify(why)) = self;
        f.write_str(why)
    }
}

impl From<LaneError> for JobError {
    fn from(error: LaneError) -> Self {
        Self::Io(error.0)
    }
}

#[derive(Debug, Clone, Copy)]
struct Flight {
    operation: Operation,
    start: Instant,
    issued: Instant,
}

pub(super) struct Worker<'a> {
    plan: &'a Plan,
    lane: &'a mut dyn Lane,
    stop: &'a AtomicBool,
    meter: &'a Meter,
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    done: Vec<Done>,
    /// Next command, while delayed by the rate limit or by an overlapping command in flight.
    held: Option<Operation>,
    ledger: Option<Ledger>,
    pacer: Pacer,
    pub(super) stats: JobStats,
    pub(super) mismatches: Vec<String>,
}

impl<'a> Worker<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        lane: &'a mut dyn Lane,
        stop: &'a AtomicBool,
        meter: &'a Meter,
    ) -> Self {
        let depth = usize::from(plan.job.iodepth);
        let mut worker = Self {
            plan,
            lane,
            stop,
            meter,
            flights: vec![None; depth],
            free: (0..depth).rev().collect(),
            done: Vec::with_capacity(depth),
            held: None,
            ledger: plan.job.verify.then(|| Ledger::new(plan)),
            pacer: Pacer::new(plan.job.rate_iops),
            stats: JobStats::default(),
            mismatches: Vec::new(),
        };
        worker.load_random_data();
        worker
    }

    pub(super) fn run(&mut self) -> Result<(), JobError> {
        self.sleep(self.plan.job.startdelay);
        let verifies = self.ledger.is_some();
        let writes = self.plan.job.changes_data();
        if writes || !self.plan.job.verify_only {
            self.main_phase()?;
        }
        let checks = verifies && (self.plan.job.verify_only || writes && self.plan.job.do_verify);
        if checks && !self.stopped() {
            self.verify_phase()?;
        }
        match self.stats.bad_blocks {
            0 => Ok(()),
            1 => Err(JobError::Verify("1 bad block".to_owned())),
            bad => Err(JobError::Verify(format!("{bad} bad blocks"))),
        }
    }

    fn main_phase(&mut self) -> Result<(), JobError> {
        let job = &self.plan.job;
        let (amount, timed) = (self.plan.amount, job.time_based);
        self.meter
            .goal
            .store(if timed { 0 } else { amount }, Relaxed);
        let begins = Instant::now();
        let counts_from = begins + job.ramp_time;
        let ends = job.runtime.map(|runtime| counts_from + runtime);
        let phase = if job.ramp_time.is_zero() {
            Phase::Running
        } else {
            Phase::Ramp
        };
        self.meter.set_phase(phase);
        let mut source = Source::new(self.plan);
        self.drive(&mut source, counts_from, ends)?;
        if job.end_fsync && !self.stopped() {
            self.drive(&mut std::iter::once(FLUSH), counts_from, None)?;
        }
        let ran = Instant::now().saturating_duration_since(counts_from);
        self.stats.set_runtime(ran);
        Ok(())
    }

    fn verify_phase(&mut self) -> Result<(), JobError> {
        self.held = None;
        let ledger = self.ledger.as_ref().expect("a job that verifies has one");
        let mut reads = ledger.reads(self.plan.job.bs_max);
        self.meter.goal.store(0, Relaxed);
        self.meter.set_phase(Phase::Verifying);
        let begins = Instant::now();
        self.drive(&mut reads, begins, None)?;
        let read = &mut self.stats.directions[Direction::Read as usize];
        read.runtime += begins.elapsed();
        Ok(())
    }

    /// Keeps up to `iodepth` commands in flight until `source` ends, `ends` is reached or the run is stopped. Then
    /// waits for the commands in flight.
    fn drive(
        &mut self,
        source: &mut dyn Iterator<Item = Operation>,
        counts_from: Instant,
        ends: Option<Instant>,
    ) -> Result<(), JobError> {
        let mut more = true;
        let mut last_call = None;
        loop {
            let now = Instant::now();
            if self.stopped() && now > *last_call.get_or_insert(now + LAST_CALL) {
                let left = self.in_flight();
                return Err(JobError::Io(format!("{left} commands were never answered")));
            }
            if self.stopped() || ends.is_some_and(|ends| now >= ends) {
                more = false;
                self.held = None;
            }
            if self.meter.phase() == Phase::Ramp && now >= counts_from {
                self.meter.set_phase(Phase::Running);
            }
            if more {
                more = self.top_up(source, now)?;
            }
            if !more && self.in_flight() == 0 {
                return Ok(());
            }
            let mut deadline = now + GLANCE;
            if more {
                for sooner in [ends, self.pacer.due].into_iter().flatten() {
                    deadline = deadline.min(sooner);
                }
            }
            self.lane.reap(deadline, &mut self.done)?;
            self.land(counts_from)?;
        }
    }

    /// Submits commands until all slots are in use or the next command must be delayed. Returns false if `source` has
    /// ended.
    fn top_up(
        &mut self,
        source: &mut dyn Iterator<Item = Operation>,
        now: Instant,
    ) -> Result<bool, JobError> {
        let mut sent = 0;
        self.pacer.due = None;
        let more = loop {
            if self.free.is_empty() {
                break true;
            }
            let Some(operation) = self.held.take().or_else(|| source.next()) else {
                break false;
            };
            let waits = self.must_wait(&operation) || self.pacer.holds(operation.command, now);
            if waits {
                self.held = Some(operation);
                break true;
            }
            self.send(operation)?;
            sent += 1;
        };
        if sent > 0 {
            self.stats.submit.add_batch(sent);
        }
        Ok(more)
    }

    /// True if a verified job must not yet submit `operation`: it overlaps with a command in flight, and one of the two
    /// is a write.
    fn must_wait(&self, operation: &Operation) -> bool {
        let writes = |operation: &Operation| operation.command == Command::Write;
        self.ledger.is_some()
            && self.flights.iter().flatten().any(|flight| {
                let either = writes(operation) || writes(&flight.operation);
                either && operation.overlaps(&flight.operation)
            })
    }

    fn send(&mut self, operation: Operation) -> Result<(), JobError> {
        let slot = self.free.pop().expect("the caller has looked");
        if let (Command::Write, Some(ledger)) = (operation.command, &mut self.ledger) {
            let lane = &mut *self.lane;
            ledger.write(operation, |at, unit| lane.load(slot, at, unit));
        }
        let start = Instant::now();
        self.lane.submit(slot, operation)?;
        self.flights[slot] = Some(Flight {
            operation,
            start,
            issued: Instant::now(),
        });
        self.stats.depth.add_depth(self.in_flight());
        Ok(())
    }

    fn land(&mut self, counts_from: Instant) -> Result<(), JobError> {
        if self.done.is_empty() {
            return Ok(());
        }
        self.stats.complete.add_batch(self.done.len());
        let mut done = std::mem::take(&mut self.done);
        let mut outcome = Ok(());
        for done in done.drain(..) {
            let flight = self.flights[done.slot].take();
            let flight = flight.expect("a command ends once");
            self.free.push(done.slot);
            let landed = self.landed(done, flight, counts_from);
            outcome = outcome.and(landed);
        }
        self.done = done;
        outcome
    }

    fn landed(&mut self, done: Done, flight: Flight, counts_from: Instant) -> Result<(), JobError> {
        let operation = flight.operation;
        if let Err(error) = done.result {
            return Err(JobError::Io(format!(
                "{} of {} bytes at offset {}: {error}",
                operation.command, operation.length, operation.offset
            )));
        }
        let times = Times {
            start: flight.start,
            issued: flight.issued,
            done: done.at,
        };
        let bytes = u64::from(operation.length);
        let counts = flight.start >= counts_from;
        match direction(operation.command) {
            Some(direction) => {
                self.meter.add(direction, bytes, times.latency());
                if counts {
                    self.stats.record(direction, bytes, times);
                }
            }
            None if counts => self.stats.record_sync(times),
            None => {}
        }
        if operation.command == Command::Read
            && let ControlFlow::Break(fatal) = self.check(done.slot, operation)
        {
            return Err(fatal);
        }
        Ok(())
    }

    fn check(&mut self, slot: usize, operation: Operation) -> ControlFlow<JobError> {
        let Some(ledger) = &mut self.ledger else {
            return ControlFlow::Continue(());
        };
        let (lane, stats) = (&*self.lane, &mut self.stats);
        let mismatches = &mut self.mismatches;
        let mut first = None;
        let mut bad = 0;
        let checked = ledger.check(
            operation,
            |at, unit| lane.unload(slot, at, unit),
            |mismatch| {
                bad += 1;
                let text = mismatch.to_string();
                first.get_or_insert_with(|| text.clone());
                if mismatches.len() < MISMATCHES_MAX {
                    mismatches.push(text);
                }
            },
        );
        stats.verified += checked - bad;
        stats.bad_blocks += bad;
        match first {
            Some(text) if self.plan.job.verify_fatal => ControlFlow::Break(JobError::Verify(text)),
            _ => ControlFlow::Continue(()),
        }
    }

    fn load_random_data(&mut self) {
        let job = &self.plan.job;
        if !job.rw.writes || job.verify {
            return;
        }
        let mut random = Random::new(self.plan.seed);
        let mut data = vec![0; job.bs_max as usize];
        for slot in 0..self.flights.len() {
            random.fill(&mut data);
            self.lane.load(slot, 0, &data);
        }
    }

    fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.stopped() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(GLANCE));
        }
    }

    fn in_flight(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

fn direction(command: Command) -> Option<Direction> {
    match command {
        Command::Read => Some(Direction::Read),
        Command::Write => Some(Direction::Write),
        Command::Trim => Some(Direction::Trim),
        Command::Flush => None,
    }
}

#[derive(Debug)]
struct Pacer {
    intervals: [Option<Duration>; 3],
    next: [Option<Instant>; 3],
    due: Option<Instant>,
}

impl Pacer {
    fn new(rates: [Option<u64>; 3]) -> Self {
        let interval = |rate: u64| Duration::from_secs(1) / rate.min(1_000_000_000) as u32;
        Self {
            intervals: rates.map(|rate| rate.map(interval)),
            next: [None; 3],
            due: None,
        }
    }

    /// Returns true if the command must be delayed; otherwise counts it.
    fn holds(&mut self, command: Command, now: Instant) -> bool {
        let Some(at) = direction(command).map(|direction| direction as usize) else {
            return false;
        };
        let Some(interval) = self.intervals[at] else {
            return false;
        };
        let next = *self.next[at].get_or_insert(now);
        if now < next {
            self.due = Some(next);
            return true;
        }
        self.next[at] = Some(next + interval);
        false
    }
}
