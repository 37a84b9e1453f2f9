use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::step::{Outcome, Step};
use crate::times::{self, Times};

pub(super) struct Lane {
    pub(super) name: &'static str,
    pub(super) steps: Vec<Step>,
}

pub(super) struct Done {
    pub(super) name: &'static str,
    pub(super) outcome: Outcome,
    pub(super) took: Duration,
}

pub(super) fn run_all(lanes: Vec<Lane>, times: &Times) -> Result<Vec<Done>> {
    let lanes: Vec<Lane> = lanes
        .into_iter()
        .filter(|lane| !lane.steps.is_empty())
        .collect();
    let side_by_side = lanes.len() > 1;
    let now = Instant::now();
    let ends: Vec<Instant> = lanes
        .iter()
        .map(|lane| now + expected(&lane.steps, times))
        .collect();
    let ends = Mutex::new(ends);
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
                let ends = &ends;
                let left = move |lane_left| time_left(ends, index, lane_left);
                scope.spawn(move || run(lane, &prefix, times, left))
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

fn expected<'a>(steps: impl IntoIterator<Item = &'a Step>, times: &Times) -> Duration {
    steps.into_iter().map(|step| times.of(step.name)).sum()
}

fn time_left(ends: &Mutex<Vec<Instant>>, lane: usize, lane_left: Duration) -> Duration {
    let now = Instant::now();
    let mut ends = ends.lock().expect("a lane does not panic");
    ends[lane] = now + lane_left;
    let last = ends.iter().copied().max().unwrap_or(now);
    last.saturating_duration_since(now)
}

fn run(
    lane: Lane,
    prefix: &str,
    times: &Times,
    left: impl Fn(Duration) -> Duration,
) -> Result<Vec<Done>> {
    let count = lane.steps.len();
    let mut done = Vec::new();
    let mut lane_left = expected(&lane.steps, times);
    for (index, step) in lane.steps.into_iter().enumerate() {
        let name = step.name;
        println!(
            "{prefix}\n{prefix}==> {name} ({} of {count}; {}): {}",
            index + 1,
            times::left(left(lane_left)),
            step.command_line()
        );
        let started = Instant::now();
        let outcome = step.run(prefix)?;
        done.push(Done {
            name,
            outcome,
            took: started.elapsed(),
        });
        lane_left = lane_left.saturating_sub(times.of(name));
    }
    Ok(done)
}
