//! Execution of one copy of a job on its lane.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::lane::{Direction, Done, Lane, Operation};
use super::ledger::Ledger;
use super::meter::{Meter, Phase};
use super::plan::Plan;
use super::source::Source;
use super::stats::{JobStats, Times};

const GLANCE: Duration = Duration::from_millis(100);
const LAST_CALL: Duration = Duration::from_secs(5);
/// Maximum bad blocks described in the result; more are only counted.
const MISMATCHES_MAX: usize = 10;

/// Error that ended a job early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobError {
    /// A command or the connection failed.
    Io(String),
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
    /// Next command, if it waits for the rate limit or an overlapping command.
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
        self.main_phase()?;
        let job = &self.plan.job;
        if job.verify && job.do_verify && job.rw.writes && !self.stopped() {
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
        if !job.time_based {
            self.meter.goal.store(self.plan.amount(), Relaxed);
        }
        let counts_from = Instant::now() + job.ramp_time;
        let ends = job.runtime.map(|runtime| counts_from + runtime);
        self.meter.set_phase(Phase::Ramp);
        let driven = self.drive(&mut Source::new(self.plan), counts_from, ends);
        let ran = Instant::now().saturating_duration_since(counts_from);
        self.stats.set_runtime(ran);
        driven
    }

    fn verify_phase(&mut self) -> Result<(), JobError> {
        let ledger = self.ledger.as_ref().expect("a job that verifies has one");
        let mut reads = ledger.reads(self.plan.job.bs_max);
        self.meter.goal.store(0, Relaxed);
        self.meter.set_phase(Phase::Verifying);
        let begins = Instant::now();
        let driven = self.drive(&mut reads, begins, None);
        let read = &mut self.stats.directions[Direction::Read as usize];
        read.runtime += begins.elapsed();
        driven
    }

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
            let reaped = self.lane.reap(deadline, &mut self.done);
            self.land(counts_from)?;
            reaped.map_err(JobError::Io)?;
        }
    }

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
            let waits = self.must_wait(&operation) || self.pacer.holds(operation.direction, now);
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

    fn must_wait(&self, operation: &Operation) -> bool {
        let mut flights = self.flights.iter().flatten();
        self.ledger.is_some() && flights.any(|flight| operation.conflicts(&flight.operation))
    }

    fn send(&mut self, operation: Operation) -> Result<(), JobError> {
        let slot = self.free.pop().expect("the caller has looked");
        if let (Direction::Write, Some(ledger)) = (operation.direction, &mut self.ledger) {
            let lane = &mut *self.lane;
            ledger.write(operation, |at, unit| lane.load(slot, at, unit));
        }
        let start = Instant::now();
        self.lane.submit(slot, operation).map_err(JobError::Io)?;
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
                "a {} of {} bytes at offset {}: {error}",
                operation.direction.name(),
                operation.length,
                operation.offset
            )));
        }
        let times = Times {
            start: flight.start,
            issued: flight.issued,
            done: done.at,
        };
        let bytes = u64::from(operation.length);
        self.meter.add(operation.direction, bytes, times.latency());
        if flight.start >= counts_from {
            self.stats.record(operation.direction, bytes, times);
        }
        if operation.direction == Direction::Read {
            self.check(done.slot, operation);
        }
        Ok(())
    }

    fn check(&mut self, slot: usize, operation: Operation) {
        let Some(ledger) = &mut self.ledger else {
            return;
        };
        let (lane, mismatches) = (&*self.lane, &mut self.mismatches);
        let mut bad = 0;
        let checked = ledger.check(
            operation,
            |at, unit| lane.unload(slot, at, unit),
            |mismatch| {
                bad += 1;
                if mismatches.len() < MISMATCHES_MAX {
                    mismatches.push(mismatch);
                }
            },
        );
        self.stats.verified += checked - bad;
        self.stats.bad_blocks += bad;
    }

    fn load_random_data(&mut self) {
        let job = &self.plan.job;
        if !job.rw.writes || job.verify {
            return;
        }
        let mut random = Rng::with_seed(self.plan.seed);
        let mut data = vec![0; job.bs_max as usize];
        for slot in 0..self.flights.len() {
            random.fill(&mut data);
            self.lane.load(slot, 0, &data);
        }
    }

    fn in_flight(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

#[derive(Debug)]
struct Pacer {
    interval: Option<Duration>,
    next: [Option<Instant>; 2],
    due: Option<Instant>,
}

impl Pacer {
    fn new(rate: Option<u64>) -> Self {
        Self {
            interval: rate.map(|rate| Duration::from_nanos(1_000_000_000 / rate)),
            next: [None; 2],
            due: None,
        }
    }

    fn holds(&mut self, direction: Direction, now: Instant) -> bool {
        let Some(interval) = self.interval else {
            return false;
        };
        let next = self.next[direction as usize].get_or_insert(now);
        if now < *next {
            self.due = Some(*next);
            return true;
        }
        *next += interval;
        false
    }
}
