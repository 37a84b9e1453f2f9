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
//! when its work comes. So a reactor that loses much of its core to others while it polls tries which of the two
//! serves more commands, and does that for a while.

use std::time::{Duration, Instant};

use crate::trial::Trial;

/// The smallest window after a gap worth polling for.
const WINDOW_MIN: Duration = Duration::from_micros(10);

/// Without work for this long, a poll offers the core to others.
const CORE_KEPT: Duration = Duration::from_micros(20);

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
    /// Commands that were served, ever.
    served: u64,
    shared: Trial,
}

impl Idle {
    /// Windows up to `largest`; 0 sleeps at once, always.
    pub fn new(largest: Duration) -> Self {
        Self {
            largest,
            window: largest,
            since: None,
            was_short: false,
            served: 0,
            shared: Trial::default(),
        }
    }

    /// There was work.
    #[inline]
    pub fn worked(&mut self) {
        self.since = None;
    }

    /// So many commands came.
    #[inline]
    pub fn serves(&mut self, commands: u64) {
        self.served += commands;
    }

    /// Others take the core while this thread polls ([`crate::Contention`]).
    pub fn core_is_shared(&mut self, now: Instant) {
        self.shared.begin(now, self.served);
    }

    /// There was none in the round that began `now`: what to do after it.
    #[inline]
    pub fn pause(&mut self, now: Instant) -> Pause {
        let since = *self.since.get_or_insert(now);
        let polled = now.duration_since(since);
        if self.shared.sleeps(now, self.served) || polled >= self.window {
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
    fn a_core_that_others_take_is_not_polled_on_if_sleeping_serves_more() {
        let ms = |count| Duration::from_millis(count);
        let mut idle = Idle::new(ms(1));
        let mut now = Instant::now();
        idle.core_is_shared(now);
        for (by_sleeping, then) in [(200, Pause::Sleep), (90, Pause::Spin)] {
            assert_eq!(idle.pause(now), Pause::Spin, "polling is tried");
            idle.serves(100);
            idle.worked();
            now += ms(100);
            assert_eq!(idle.pause(now), Pause::Sleep, "sleeping is tried");
            idle.serves(by_sleeping);
            idle.worked();
            now += ms(100);
            assert_eq!(idle.pause(now), then);
            idle.worked();
            now += ms(100);
            assert_eq!(idle.pause(now), Pause::Spin, "a while later");
            idle.worked();
            idle.core_is_shared(now);
        }
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
