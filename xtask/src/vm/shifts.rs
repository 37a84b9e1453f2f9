//! Order of scenarios. With `beside`, two run concurrently if a processor is idle.

use std::collections::VecDeque;
use std::fs;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::scenario::Scenario;

const WATCHED: Duration = Duration::from_secs(5);

const IDLE_LEAST: f64 = 0.7;

struct ScenarioQueue<'a>(Mutex<VecDeque<&'a Scenario>>);

impl<'a> ScenarioQueue<'a> {
    fn new(scenarios: &[&'a Scenario]) -> Self {
        Self(Mutex::new(scenarios.iter().copied().collect()))
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<&'a Scenario>> {
        self.0.lock().expect("no scenario panics")
    }

    fn next(&self) -> Option<&'a Scenario> {
        self.lock().pop_front()
    }

    fn clear(&self) {
        self.lock().clear();
    }

    fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

pub(crate) fn run(
    scenarios: &[&Scenario],
    beside: bool,
    run: impl Fn(&Scenario) -> Result<()> + Sync,
) -> Result<()> {
    let waiting = &ScenarioQueue::new(scenarios);
    thread::scope(|scope| {
        let helper = beside.then(|| {
            scope.spawn(|| {
                while wait_for_idle(waiting)? {
                    if let Some(scenario) = waiting.next() {
                        run(scenario)?;
                    }
                }
                Ok(())
            })
        });
        while let Some(scenario) = waiting.next() {
            run(scenario).inspect_err(|_| waiting.clear())?;
        }
        helper.map_or(Ok(()), |helper| helper.join().expect("no scenario panics"))
    })
}

fn wait_for_idle(waiting: &ScenarioQueue<'_>) -> Result<bool> {
    while !waiting.is_empty() {
        let before = Ticks::now()?;
        thread::sleep(WATCHED);
        if Ticks::now()?.idle_since(&before) >= IDLE_LEAST {
            return Ok(!waiting.is_empty());
        }
    }
    Ok(false)
}

struct Ticks {
    idle: u64,
    all: u64,
    processors: usize,
}

impl Ticks {
    fn now() -> Result<Self> {
        let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        Self::of(&text).context("/proc/stat has no line of all processors")
    }

    fn of(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks = line.split_whitespace().take(8);
        let ticks: Vec<u64> = ticks.map_while(|word| word.parse().ok()).collect();
        let of_one = |line: &&str| {
            line.strip_prefix("cpu")
                .is_some_and(|rest| !rest.starts_with(' '))
        };
        Some(Self {
            idle: ticks.get(3)? + ticks.get(4)?,
            all: ticks.iter().sum(),
            processors: stat.lines().filter(of_one).count(),
        })
    }

    fn idle_since(&self, before: &Self) -> f64 {
        let idle = self.idle.saturating_sub(before.idle) as f64;
        let all = self.all.saturating_sub(before.all).max(1) as f64;
        idle / all * self.processors as f64
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn idle_processors_are_counted() {
        let before = "cpu  100 0 50 1000 10 0 5 0 0 0\ncpu0 1 2\ncpu1 1 2\nintr 5\n";
        let after = "cpu  190 0 60 1090 20 0 5 0 0 0\ncpu0 1 2\ncpu1 1 2\nintr 5\n";
        let [before, after] = [before, after].map(|text| Ticks::of(text).unwrap());
        assert!((after.idle_since(&before) - 1.0).abs() < 1e-9);
        assert!(Ticks::of("intr 5\n").is_none());
        assert!(Ticks::now().is_ok());
    }

    #[test]
    fn each_runs_once_and_an_error_is_reported() {
        let plain = Scenario::plain();
        for beside in [false, true] {
            let count = AtomicU32::new(0);
            run(&[&plain; 7], beside, |_| {
                count.fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
            .unwrap();
            assert_eq!(count.into_inner(), 7);
            assert!(run(&[&plain; 2], beside, |_| anyhow::bail!("no machine")).is_err());
        }
    }
}
