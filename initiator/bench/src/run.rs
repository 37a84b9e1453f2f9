//! Runs a job, each copy on its own thread.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::cpu::CpuUse;
use super::job::Job;
use super::lane::{Direction, Lanes};
use super::meter::{Count, Meter, Phase};
use super::plan::{Plan, plans};
use super::stats::JobStats;
use super::worker::{JobError, Worker};

#[derive(Debug, Clone)]
pub struct JobResult {
    pub plan: Plan,
    pub stats: JobStats,
    pub error: Option<JobError>,
    /// Descriptions of the first bad blocks.
    pub mismatches: Vec<String>,
    /// Run time of the copy, including ramp time and verification.
    pub elapsed: Duration,
    pub(super) cpu: CpuUse,
}

#[derive(Debug)]
pub struct BenchResult {
    pub jobs: Vec<JobResult>,
    pub interrupted: bool,
}

impl BenchResult {
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.jobs.iter().all(|job| job.error.is_none())
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Glimpse {
    pub elapsed: Duration,
    /// Counters of all copies together, by [`Direction`].
    pub counts: [Count; 2],
    pub running: usize,
    /// Earliest phase of the running copies.
    pub phase: Phase,
    /// Completed fraction of the work, or `None` if unknown.
    pub progress: Option<f64>,
}

pub trait Audience {
    /// Called every second during a run.
    fn glimpse(&mut self, glimpse: &Glimpse);
}

impl Audience for () {
    fn glimpse(&mut self, _: &Glimpse) {}
}

/// Runs all copies of a job until they end or `stop` becomes true.
///
/// # Errors
/// The job does not fit the namespace, or a lane cannot be opened. No command was sent.
pub fn run(
    job: &Job,
    lanes: &dyn Lanes,
    stop: &AtomicBool,
    audience: &mut dyn Audience,
) -> Result<BenchResult, String> {
    let plans = plans(job, lanes.format())?;
    Ok(BenchResult {
        jobs: run_copies(&plans, lanes, stop, audience)?,
        interrupted: stop.load(Relaxed),
    })
}

fn run_copies(
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
                .unwrap_or_else(|_| Err("the thread of a job has ended unexpectedly".to_owned()))
        });
        if all_open.is_ok() {
            for (start, _) in &starts {
                let _ = start.send(());
            }
            follow(plans, &meters, &ended, audience);
        }
        let handles = starts.into_iter().map(|(start, handle)| {
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
            let _ = opened.send(Err(why));
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
    // After an error, the lane is not closed, because the connection may be lost.
    let outcome = outcome.and_then(|()| lane.close().map_err(JobError::Io));
    Some(JobResult {
        plan: plan.clone(),
        stats,
        error: outcome.err(),
        mismatches,
        elapsed,
        cpu: CpuUse::of_this_thread(),
    })
}

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
            let all = job.ramp_time + runtime;
            elapsed.as_secs_f64() / all.as_secs_f64().max(f64::MIN_POSITIVE)
        });
        let most = by_bytes.into_iter().chain(by_time).reduce(f64::max)?;
        Some(most.min(1.0))
    };
    let all: Option<Vec<f64>> = plans.iter().zip(meters).map(of_one).collect();
    all?.into_iter().reduce(f64::min)
}
