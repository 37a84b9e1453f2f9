//! Whether sleeping or polling serves more commands on a core that others take.
//!
//! It depends on who they are. A program that computes keeps the core for milliseconds that a poll has offered,
//! while hosts wait; a thread that sleeps gets the core when its work comes. Threads that make our work (hosts, the
//! kernel of a machine with one processor) give the core back when they wait for us, and there a sleep is only
//! dear. No clock and no counter shows which kind it is. So both are tried, one after the other, and the better
//! one is kept for a while.

use std::time::{Duration, Instant};

/// How long each is tried: some tens of turns of a scheduler.
const TRIED: Duration = Duration::from_millis(100);

/// So many times what polling served must sleeping serve: less may be chance.
const WORTH: f64 = 1.1;

/// How long the better one is kept: at first, and at most.
const KEPT_MIN: Duration = Duration::from_millis(100);
const KEPT_MAX: Duration = Duration::from_secs(4);

/// Who finds the same so soon after that keeps it for longer.
const SOON: Duration = Duration::from_secs(1);

/// What is tried, and what is known.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    phase: Phase,
    last: Option<Finding>,
}

#[derive(Debug, Default, Clone, Copy)]
enum Phase {
    /// No other thread takes the core, as far as is known.
    #[default]
    Alone,
    Polls(Stretch),
    /// It sleeps, and polling served so many commands a second.
    Sleeps(Stretch, f64),
    Known(Finding),
}

/// What is better, how long it is kept, and until when.
#[derive(Debug, Clone, Copy)]
struct Finding {
    sleeps: bool,
    kept: Duration,
    until: Instant,
}

/// A time of one behaviour.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    since: Instant,
    /// The commands that had been served before.
    served: u64,
}

impl Stretch {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= TRIED
    }

    /// Commands a second.
    fn rate(&self, now: Instant, served: u64) -> f64 {
        let passed = now.saturating_duration_since(self.since).max(TRIED);
        (served - self.served) as f64 / passed.as_secs_f64()
    }
}

impl Trial {
    /// Others take the core while this thread polls. It has served so many commands, ever.
    pub(crate) fn begin(&mut self, now: Instant, served: u64) {
        if matches!(self.phase, Phase::Alone) {
            self.phase = Phase::Polls(Stretch { since: now, served });
        }
    }

    /// Whether to sleep now, instead of polling.
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

    /// Keeps what is better, longer each time that it is the same.
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

    /// The part of 20 s in which a thread sleeps whose core is taken whenever it polls, if it serves so
    /// many commands a millisecond by polling and by sleeping.
    fn part_asleep(polling: u64, sleeping: u64) -> f64 {
        let (mut trial, mut now) = (Trial::default(), Instant::now());
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
        let (mut trial, now) = (Trial::default(), Instant::now());
        assert!((0..5000).all(|ms| !trial.sleeps(now + Duration::from_millis(ms), ms)));
    }

    /// A core that is no longer taken is polled on, and later finds begin anew.
    #[test]
    fn a_finding_ends() {
        let (mut trial, mut now) = (Trial::default(), Instant::now());
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
            // The count goes on from here as if it were 0.
            trial.phase = Phase::Alone;
        }
        now += SOON + 2 * TRIED;
        trial.begin(now, 0);
        assert!(trial.sleeps(now + TRIED, 100));
        assert!(trial.sleeps(now + 2 * TRIED, 300));
        assert!(!trial.sleeps(now + 3 * TRIED, 300), "the shortest time");
    }
}
