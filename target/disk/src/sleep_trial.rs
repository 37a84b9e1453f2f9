//! Determines whether a reactor on a shared core serves more commands by sleeping or by polling.
//!
//! A polling reactor yields its core. A program that only computes keeps the core for milliseconds;
//! sleeping is then better, because the reactor gets the core back when work arrives. A program
//! that produces the reactor's work soon returns the core, and sleeping only costs time. No clock
//! or counter distinguishes these programs, so the reactor tries both ways.

use std::time::{Duration, Instant};

const TRIED: Duration = Duration::from_millis(100);

/// Minimum gain in the command rate by sleeping. A smaller gain may be chance.
const WORTH: f64 = 1.1;

/// Time for which a trial's result applies: first `KEPT_MIN`, doubled by each new trial with the
/// same result up to `KEPT_MAX`.
const KEPT_MIN: Duration = Duration::from_millis(100);
const KEPT_MAX: Duration = Duration::from_secs(4);

/// Maximum time from the expiry of a result to the next result. After a longer time, the next
/// result again applies for `KEPT_MIN`.
const SOON: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct SleepTrial {
    phase: Phase,
    last: Option<Finding>,
}

#[derive(Debug, Default, Clone, Copy)]
enum Phase {
    #[default]
    Alone,
    Polls(Stretch),
    Sleeps(Stretch, f64),
    Known(Finding),
}

#[derive(Debug, Clone, Copy)]
struct Finding {
    sleeps: bool,
    kept: Duration,
    until: Instant,
}

#[derive(Debug, Clone, Copy)]
struct Stretch {
    since: Instant,
    served: u64,
}

impl Stretch {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= TRIED
    }

    fn rate(&self, now: Instant, served: u64) -> f64 {
        let passed = now.saturating_duration_since(self.since).max(TRIED);
        (served - self.served) as f64 / passed.as_secs_f64()
    }
}

impl SleepTrial {
    pub(crate) fn begin(&mut self, now: Instant, served: u64) {
        if matches!(self.phase, Phase::Alone) {
            self.phase = Phase::Polls(Stretch { since: now, served });
        }
    }

    #[inline]
    pub(crate) fn sleeps(&mut self, now: Instant, served: u64) -> bool {
        !matches!(self.phase, Phase::Alone) && self.goes_on(now, served)
    }

    #[cold]
    fn goes_on(&mut self, now: Instant, served: u64) -> bool {
        match self.phase {
            Phase::Polls(stretch) if stretch.is_over(now) => {
                let begins = Stretch { since: now, served };
                self.phase = Phase::Sleeps(begins, stretch.rate(now, served));
                true
            }
            Phase::Sleeps(stretch, polling) if stretch.is_over(now) => {
                self.conclude(now, stretch.rate(now, served) >= polling * WORTH)
            }
            Phase::Known(finding) if now >= finding.until => {
                self.phase = Phase::Alone;
                false
            }
            Phase::Known(finding) => finding.sleeps,
            Phase::Sleeps(..) => true,
            Phase::Polls(_) | Phase::Alone => false,
        }
    }

    fn conclude(&mut self, now: Instant, sleeps: bool) -> bool {
        let again = self
            .last
            .filter(|last| last.sleeps == sleeps && now < last.until + SOON);
        let kept = again.map_or(KEPT_MIN, |last| (last.kept * 2).min(KEPT_MAX));
        let until = now + kept;
        let finding = Finding {
            sleeps,
            kept,
            until,
        };
        self.last = Some(finding);
        self.phase = Phase::Known(finding);
        sleeps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part_asleep(polling: u64, sleeping: u64) -> f64 {
        let (mut trial, mut now) = (SleepTrial::default(), Instant::now());
        let (mut served, mut asleep) = (0, 0);
        for _ in 0..20_000 {
            now += Duration::from_millis(1);
            let sleeps = trial.sleeps(now, served);
            if sleeps {
                (served, asleep) = (served + sleeping, asleep + 1);
            } else {
                served += polling;
                trial.begin(now, served);
            }
        }
        f64::from(asleep) / 20_000.0
    }

    #[test]
    fn the_better_one_is_kept_most_of_the_time() {
        assert!(part_asleep(3, 13) > 0.85, "{}", part_asleep(3, 13));
        assert!(part_asleep(100, 95) < 0.1, "{}", part_asleep(100, 95));
        assert!(part_asleep(100, 107) < 0.1, "what may be chance");
        assert!(part_asleep(100, 116) > 0.85);
    }

    #[test]
    fn nothing_is_tried_on_a_core_of_its_own() {
        let (mut trial, now) = (SleepTrial::default(), Instant::now());
        assert!((0..5000).all(|ms| !trial.sleeps(now + Duration::from_millis(ms), ms)));
    }

    #[test]
    fn a_finding_ends() {
        let (mut trial, mut now) = (SleepTrial::default(), Instant::now());
        let ms = Duration::from_millis;
        for kept in [100, 200, 400, 800, 1600, 3200, 4000, 4000] {
            trial.begin(now, 0);
            now += TRIED;
            assert!(trial.sleeps(now, 100), "the second trial");
            now += TRIED;
            assert!(trial.sleeps(now, 300), "better");
            assert!(trial.sleeps(now + ms(kept - 1), 300), "{kept}");
            now += ms(kept);
            assert!(!trial.sleeps(now, 300), "{kept}");
            trial.phase = Phase::Alone;
        }
        now += SOON + 2 * TRIED;
        trial.begin(now, 0);
        assert!(trial.sleeps(now + TRIED, 100));
        assert!(trial.sleeps(now + 2 * TRIED, 300));
        assert!(!trial.sleeps(now + 3 * TRIED, 300), "the shortest time");
    }
}
