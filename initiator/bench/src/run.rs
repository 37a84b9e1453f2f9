//! All jobs, from first to last: stage by stage, each copy on its thread.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::cpu::CpuUse;
use super::job::{Direction, Job};
use super::lane::{Format, Lane};
use super::meter::{Count, Meter, Phase};
use super::plan::{Plan, plans};
use super::stats::JobStats;
use super::worker::{JobError, Worker};

/// Where jobs get their lanes from.
pub trait Lanes: Sync {
    /// The namespace.
    fn format(&self) -> Format;

    /// A lane for `depth` commands of `slot_bytes` at most.
    ///
    /// # Errors
    /// Why there is none.
    fn open(&self, depth: u16, slot_bytes: usize) -> Result<Box<dyn Lane>, String>;
}

/// What became of one copy of a job.
#[derive(Debug, Clone)]
pub struct JobResult {
    /// What it was to do.
    pub plan: Plan,
    /// What it did.
    pub stats: JobStats,
    /// Why it ended before its time.
    pub error: Option<JobError>,
    /// The first bad blocks, in words.
    pub mismatches: Vec<String>,
    /// From its first command to its last.
    pub elapsed: Duration,
    /// What it cost this machine.
    pub cpu: CpuUse,
}

/// All copies of all jobs.
#[derive(Debug)]
pub struct BenchResult {
    /// In the order in which they were given.
    pub jobs: Vec<JobResult>,
    /// Someone said stop before they were through.
    pub interrupted: bool,
    /// Why jobs that wait for others did not begin.
    pub failure: Option<String>,
}

impl BenchResult {
    /// Whether every job did all that it was to do.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.failure.is_none() && self.jobs.iter().all(|job| job.error.is_none())
    }
}

/// All jobs that run at a moment, seen as one.
#[derive(Debug, Clone, Copy)]
pub struct Glimpse {
    /// Since the first of them began.
    pub elapsed: Duration,
    /// What they have counted, by [`Direction`].
    pub counts: [Count; 3],
    /// Jobs that are connected and not over.
    pub running: usize,
    /// The one that is furthest behind.
    pub phase: Phase,
    /// Share of the work that is done, from 0 to 1, where that is known.
    pub progress: Option<f64>,
}

/// Who follows a run.
pub trait Audience {
    /// Called after each second.
    fn glimpse(&mut self, glimpse: &Glimpse);
}

/// Runs jobs until they are through, or `stop` is set.
///
/// # Errors
/// A job does not fit the namespace, or a lane of the first stage cannot be opened; then nothing was
/// read or written. A later stage that cannot begin is the result's
/// [`failure`](BenchResult::failure), beside what was measured until then.
pub fn run(
    jobs: &[Job],
    lanes: &dyn Lanes,
    stop: &AtomicBool,
    audience: &mut dyn Audience,
) -> Result<BenchResult, String> {
    let plans = plans(jobs, lanes.format())?;
    let mut results = Vec::with_capacity(plans.len());
    let mut failure = None;
    for stage in plans.chunk_by(|a, b| a.stage == b.stage) {
        if stop.load(Relaxed) || failure.is_some() {
            break;
        }
        match run_stage(stage, lanes, stop, audience) {
            Ok(more) => results.extend(more),
            Err(error) if results.is_empty() => return Err(error),
            Err(error) => failure = Some(error),
        }
    }
    Ok(BenchResult {
        jobs: results,
        interrupted: stop.load(Relaxed),
        failure,
    })
}

/// The jobs that run together.
fn run_stage(
    plans: &[Plan],
    lanes: &dyn Lanes,
    stop: &AtomicBool,
    audience: &mut dyn Audience,
) -> Result<Vec<JobResult>, String> {
    let meters: Vec<Meter> = plans.iter().map(|_| Meter::default()).collect();
    let (opened_sender, opened) = mpsc::channel();
    let (ended_sender, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let starts: Vec<_> = plans
            .iter()
            .zip(&meters)
            .map(|(plan, meter)| {
                let (start, started) = mpsc::channel();
                let opened = opened_sender.clone();
                let ended = ended_sender.clone();
                let handle = scope.spawn(move || {
                    let result = run_copy(plan, meter, lanes, stop, &opened, &started);
                    meter.set_phase(Phase::Ended);
                    drop(ended);
                    result
                });
                (start, handle)
            })
            .collect();
        drop(ended_sender);
        let all_open = plans.iter().try_for_each(|_| {
            opened
                .recv()
                .unwrap_or_else(|_| Err("a job's thread is gone".to_owned()))
        });
        if all_open.is_ok() {
            for (start, _) in &starts {
                // One that is gone says so when it is joined.
                let _ = start.send(());
            }
            follow(plans, &meters, &ended, audience);
        }
        let handles = starts.into_iter().map(|(start, handle)| {
            // A lane that still waits to begin will not begin.
            drop(start);
            handle
        });
        let results: Vec<_> = handles
            .collect::<Vec<_>>()
            .into_iter()
            .filter_map(|handle| handle.join().expect("jobs do not panic"))
            .collect();
        all_open.map(|()| results)
    })
}

/// One copy: connects, waits until all have, works. `None` if it never began.
fn run_copy(
    plan: &Plan,
    meter: &Meter,
    lanes: &dyn Lanes,
    stop: &AtomicBool,
    opened: &mpsc::Sender<Result<(), String>>,
    start: &mpsc::Receiver<()>,
) -> Option<JobResult> {
    let lane = lanes.open(plan.job.iodepth, plan.job.bs_max as usize);
    let mut lane = match lane {
        Ok(lane) => lane,
        Err(why) => {
            // If the receiver is gone, another lane has failed already.
            let _ = opened.send(Err(format!("job {}: {why}", plan.job.name)));
            return None;
        }
    };
    let _ = opened.send(Ok(()));
    start.recv().ok()?;
    let begins = Instant::now();
    let mut worker = Worker::new(plan, &mut *lane, stop, meter);
    let outcome = worker.run();
    let elapsed = begins.elapsed();
    let (stats, mismatches) = (std::mem::take(&mut worker.stats), worker.mismatches);
    // After an error there may be no connection to shut down.
    let outcome = outcome.and_then(|()| Ok(lane.close()?));
    Some(JobResult {
        plan: plan.clone(),
        stats,
        error: outcome.err(),
        mismatches,
        elapsed,
        cpu: CpuUse::of_this_thread(),
    })
}

/// Shows each second until all jobs have ended.
fn follow(
    plans: &[Plan],
    meters: &[Meter],
    ended: &mpsc::Receiver<()>,
    audience: &mut dyn Audience,
) {
    let begins = Instant::now();
    for second in 1.. {
        let next = begins + Duration::from_secs(second);
        let patience = next.saturating_duration_since(Instant::now());
        // No lane sends: the channel closes when the last job lets go of it.
        if ended.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Disconnected) {
            return;
        }
        audience.glimpse(&glimpse(plans, meters, begins.elapsed()));
    }
}

fn glimpse(plans: &[Plan], meters: &[Meter], elapsed: Duration) -> Glimpse {
    let counts = Direction::ALL.map(|direction| {
        let counts = meters.iter().map(|meter| meter.count(direction));
        counts.fold(Count::default(), Count::plus)
    });
    let active = meters.iter().filter(|m| m.phase() != Phase::Ended);
    let phase = active.clone().map(Meter::phase).min_by_key(|&p| p as u8);
    Glimpse {
        elapsed,
        counts,
        running: active.count(),
        phase: phase.unwrap_or(Phase::Ended),
        progress: progress(plans, meters, elapsed),
    }
}

/// The least of what the jobs have done, where each has an end that is known.
fn progress(plans: &[Plan], meters: &[Meter], elapsed: Duration) -> Option<f64> {
    let of_one = |(plan, meter): (&Plan, &Meter)| {
        if meter.phase() == Phase::Ended {
            return Some(1.0);
        }
        let goal = meter.goal.load(Relaxed);
        let job = &plan.job;
        let bytes = Direction::ALL.map(|direction| meter.count(direction).bytes);
        let by_bytes = (goal > 0).then(|| bytes.iter().sum::<u64>() as f64 / goal as f64);
        let by_time = job.runtime.map(|runtime| {
            let all = job.startdelay + job.ramp_time + runtime;
            elapsed.as_secs_f64() / all.as_secs_f64().max(f64::MIN_POSITIVE)
        });
        let most = by_bytes.into_iter().chain(by_time).reduce(f64::max)?;
        Some(most.min(1.0))
    };
    let all: Option<Vec<f64>> = plans.iter().zip(meters).map(of_one).collect();
    all?.into_iter().reduce(f64::min)
}
