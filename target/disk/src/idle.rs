//! When to stop polling and sleep.
//!
//! Sleeping costs a system call and a wake-up, polling costs the core. So after
//! the last work a reactor polls on for a while, its window, and how long adapts
//! to the gaps between one work and the next: twice the last gap, if that gap
//! and the one before it were such that polling could have bridged them, so that
//! a little irregularity does not end in sleep; and no time at all otherwise,
//! because a host that is silent for longer does not mind a wake-up. (It takes two:
//! a keep alive's answer is acknowledged soon, and then there is silence.) A gap
//! grows by the time it takes to wake up, at the peer too, which may be asleep for
//! the same reason: some 100 us on a processor of its own, several times that on
//! an emulated one. So the largest gap to bridge must be well above it, or two
//! sides that wait for each other would keep each other asleep for ever.
//! The administrator sets the largest gap (`poll_idle`).
//!
//! Where there are more threads than cores, the next work may come from one that
//! waits for the very core on which a reactor polls. So after a moment without
//! work each poll offers the core to others first. Who takes it keeps it for some
//! milliseconds, however soon there is work. A thread that sleeps gets the core back
//! when its work comes. So a reactor that loses much of its core to others while it polls sleeps
//! instead of polling for a while, and longer each time that it finds that again.

use std::time::{Duration, Instant};

/// The smallest window after a gap worth polling for.
const WINDOW_MIN: Duration = Duration::from_micros(10);

/// Without work for this long, a poll offers the core to others.
const CORE_KEPT: Duration = Duration::from_micros(20);

/// How long a reactor does not poll after its core was taken: at first, and at most.
const SHARED_MIN: Duration = Duration::from_millis(50);
const SHARED_MAX: Duration = Duration::from_secs(2);

/// What to do after a round without work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// Poll again at once.
    Spin,
    /// Poll again, after other threads have had the core.
    Yield,
    /// Sleep until there is work.
    Sleep,
}

/// How long to poll without work.
#[derive(Debug)]
pub struct Idle {
    largest: Duration,
    window: Duration,
    since: Option<Instant>,
    /// Whether the last gap that ended in sleep was short enough to be bridged.
    was_short: bool,
    shared: Shared,
}

/// What is known of others on this core.
#[derive(Debug, Default)]
struct Shared {
    /// Until then polling is not worth its price.
    until: Option<Instant>,
    /// How long that was.
    period: Duration,
}

impl Shared {
    /// Others take the core while this thread polls.
    fn found(&mut self, now: Instant) {
        // Found again soon after the end of such a time: this one is longer.
        let again = self.until.is_some_and(|until| now < until + self.period);
        self.period = if again {
            (self.period * 2).min(SHARED_MAX)
        } else {
            SHARED_MIN
        };
        self.until = Some(now + self.period);
    }

    fn is_now(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

impl Idle {
    /// Windows up to `largest`; 0 sleeps at once, always.
    pub fn new(largest: Duration) -> Self {
        Self {
            largest,
            window: largest,
            since: None,
            was_short: false,
            shared: Shared::default(),
        }
    }

    /// There was work.
    #[inline]
    pub fn worked(&mut self) {
        self.since = None;
    }

    /// Others take the core while this thread polls ([`crate::Contention`]).
    pub fn core_is_shared(&mut self, now: Instant) {
        self.shared.found(now);
    }

    /// There was none in the round that began `now`: what to do after it.
    #[inline]
    pub fn pause(&mut self, now: Instant) -> Pause {
        let since = *self.since.get_or_insert(now);
        let polled = now.duration_since(since);
        if polled >= self.window || self.shared.is_now(now) {
            return Pause::Sleep;
        }
        if polled >= CORE_KEPT {
            Pause::Yield
        } else {
            Pause::Spin
        }
    }

    /// The same; if `threads`, all that is under way is with other threads of this machine
    /// ([`crate::Ring::waits_for_threads`]). Then it sleeps after a moment, lest it take a core from
    /// them.
    #[inline]
    pub fn pause_for(&mut self, now: Instant, threads: bool) -> Pause {
        match self.pause(now) {
            Pause::Yield if threads => Pause::Sleep,
            pause => pause,
        }
    }

    /// It slept until now.
    #[inline]
    pub fn slept(&mut self, now: Instant) {
        let gap = self.since.take().map(|since| now.duration_since(since));
        let short = gap.filter(|gap| *gap <= self.largest);
        self.window = match short {
            Some(gap) if self.was_short => {
                (gap * 2).clamp(WINDOW_MIN.min(self.largest), self.largest)
            }
            _ => Duration::ZERO,
        };
        self.was_short = short.is_some();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reactor_leaves_its_core_to_threads_that_work_for_it() {
        let now = Instant::now();
        let mut idle = Idle::new(Duration::from_millis(1));
        assert_eq!(idle.pause_for(now, true), Pause::Spin);
        let later = now + CORE_KEPT;
        assert_eq!(idle.pause_for(later, false), Pause::Yield);
        assert_eq!(idle.pause_for(later, true), Pause::Sleep);
    }

    const MICRO: Duration = Duration::from_micros(1);

    #[test]
    fn polls_for_its_window_after_work() {
        let mut idle = Idle::new(100 * MICRO);
        let start = Instant::now();
        assert_eq!(idle.pause(start), Pause::Spin);
        assert_eq!(idle.pause(start + 19 * MICRO), Pause::Spin);
        assert_eq!(idle.pause(start + 20 * MICRO), Pause::Yield);
        assert_eq!(idle.pause(start + 99 * MICRO), Pause::Yield);
        idle.worked();
        assert_eq!(idle.pause(start + 150 * MICRO), Pause::Spin);
        assert_eq!(idle.pause(start + 250 * MICRO), Pause::Sleep);
    }

    #[test]
    fn the_window_is_twice_the_gap_after_two_that_were_worth_it() {
        let mut idle = Idle::new(1000 * MICRO);
        let mut now = Instant::now();
        for (gap, window) in [
            (2000, 0),
            (300, 0),
            (300, 600),
            (601, 1000),
            (1001, 0),
            (3, 0),
            (3, 10),
        ] {
            idle.pause(now);
            now += gap * MICRO;
            idle.slept(now);
            if window > 0 {
                assert_ne!(idle.pause(now), Pause::Sleep, "{gap}");
                assert_ne!(
                    idle.pause(now + (window - 1) * MICRO),
                    Pause::Sleep,
                    "{gap}"
                );
            }
            assert_eq!(idle.pause(now + window * MICRO), Pause::Sleep, "{gap}");
            idle.worked();
        }
    }

    #[test]
    fn a_core_that_others_take_is_not_polled_on() {
        let mut idle = Idle::new(1000 * MICRO);
        let mut now = Instant::now();
        for period in [50, 100, 200, 400, 800, 1600, 2000, 2000] {
            assert_eq!(idle.pause(now), Pause::Spin);
            now += 4000 * MICRO;
            idle.core_is_shared(now);
            idle.worked();
            // It sleeps, and its work comes soon, so that its window would be long.
            for work in [100, 200] {
                assert_eq!(idle.pause(now + (work - 99) * MICRO), Pause::Sleep);
                idle.slept(now + work * MICRO);
                idle.worked();
            }
            now += period * 1000 * MICRO;
            assert_eq!(idle.pause(now - MICRO), Pause::Sleep, "{period}");
            idle.worked();
        }
        // A long time without such a find, and the first period is the shortest again.
        now += 10_000_000 * MICRO;
        idle.worked();
        assert_eq!(idle.pause(now), Pause::Spin);
        idle.core_is_shared(now);
        assert_eq!(idle.pause(now), Pause::Sleep);
        idle.worked();
        assert_eq!(idle.pause(now + 50_000 * MICRO), Pause::Spin);
    }

    #[test]
    fn without_a_window_it_always_sleeps() {
        let mut idle = Idle::new(Duration::ZERO);
        let now = Instant::now();
        assert_eq!(idle.pause(now), Pause::Sleep);
        idle.slept(now);
        assert_eq!(idle.pause(now), Pause::Sleep);
    }
}
