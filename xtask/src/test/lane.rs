//! Lanes: steps that run one after the other, beside the steps of other lanes.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::step::{Outcome, Step};
use crate::times::{self, Times};

/// Steps in their order.
pub(super) struct Lane {
    /// What its lines of output begin with, if there are several lanes.
    pub(super) name: &'static str,
    pub(super) steps: Vec<Step>,
}

/// A step that has run.
pub(super) struct Done {
    pub(super) name: &'static str,
    pub(super) outcome: Outcome,
    pub(super) took: Duration,
}

/// Runs the lanes side by side. The steps that have run are in the order of the lanes.
pub(super) fn run_all(lanes: Vec<Lane>, times: &Times) -> Result<Vec<Done>> {
    let lanes: Vec<Lane> = lanes
        .into_iter()
        .filter(|lane| !lane.steps.is_empty())
        .collect();
    let side_by_side = lanes.len() > 1;
    // What each lane is expected to need from now on.
    let left: Vec<Duration> = lanes
        .iter()
        .map(|lane| lane.steps.iter().map(|step| times.of(step.name)).sum())
        .collect();
    let left = Mutex::new(left);
    let results = thread::scope(|scope| {
        let threads: Vec<_> = lanes
            .into_iter()
            .enumerate()
            .map(|(index, lane)| {
                let prefix = if side_by_side {
                    format!("{:<6}| ", lane.name)
                } else {
                    String::new()
                };
                let left = &left;
                scope.spawn(move || run(lane, &prefix, times, |took| advance(left, index, took)))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a lane does not panic"))
            .collect::<Vec<_>>()
    });
    let mut done = Vec::new();
    for result in results {
        done.extend(result?);
    }
    Ok(done)
}

/// Takes a step's time off its lane, and returns what all lanes still need.
fn advance(left: &Mutex<Vec<Duration>>, lane: usize, took: Duration) -> Duration {
    let mut left = left.lock().expect("a lane does not panic");
    left[lane] = left[lane].saturating_sub(took);
    left.iter().copied().max().unwrap_or_default()
}

fn run(
    lane: Lane,
    prefix: &str,
    times: &Times,
    advance: impl Fn(Duration) -> Duration,
) -> Result<Vec<Done>> {
    let count = lane.steps.len();
    let mut done = Vec::new();
    let mut left = advance(Duration::ZERO);
    for (index, step) in lane.steps.into_iter().enumerate() {
        let name = step.name;
        println!(
            "{prefix}\n{prefix}==> {name} ({} of {count}; {}): {}",
            index + 1,
            times::left(left),
            step.command_line()
        );
        let started = Instant::now();
        let outcome = step.run(prefix)?;
        done.push(Done {
            name,
            outcome,
            took: started.elapsed(),
        });
        left = advance(times.of(name));
    }
    Ok(done)
}
