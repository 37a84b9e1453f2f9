//! Decides how long a reactor polls without work before it sleeps.
//!
//! If the last two gaps between work were shorter than `poll_idle`, the reactor polls for twice the
//! last gap. Otherwise, it sleeps at once: a single short gap, as before a keep alive, does not
//! show that more work will follow. `poll_idle` must exceed the wake-up time of both peers (about
//! 100 us on a dedicated processor). Otherwise, each peer sleeps while the other wakes up.
//!
//! After [`CORE_KEPT`], each poll yields the core to threads that produce work. On a busy core, the
//! reactor also tries sleeping ([`SleepTrial`]).

use std::time::{Duration, Instant};

use crate::sleep_trial::SleepTrial;

const WINDOW_MIN: Duration = Duration::from_micros(10);

const CORE_KEPT: Duration = Duration::from_micros(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    Spin,
    Yield,
    Sleep,
}

#[derive(Debug)]
pub struct Idle {
    largest: Duration,
    window: Duration,
    since: Option<Instant>,
    was_short: bool,
    served: u64,
    shared: SleepTrial,
}

impl Idle {
    /// Creates the state of a reactor that polls without work for at most `largest`; with 0, it
    /// sleeps at once.
    pub fn new(largest: Duration) -> Self {
        Self {
            largest,
            window: largest,
            since: None,
            was_short: false,
            served: 0,
            shared: SleepTrial::default(),
        }
    }

    #[inline]
    pub fn worked(&mut self) {
        self.since = None;
    }

    #[inline]
    pub fn serves(&mut self, commands: u64) {
        self.served += commands;
    }

    /// Records that other threads use the core ([`crate::Contention`]).
    pub fn core_is_shared(&mut self, now: Instant) {
        self.shared.begin(now, self.served);
    }

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

    /// Like [`Self::pause`]. If `threads` is true, other threads execute all pending work. The
    /// reactor then sleeps instead of yielding, because these threads may need its core.
    #[inline]
    pub fn pause_for(&mut self, now: Instant, threads: bool) -> Pause {
        match self.pause(now) {
            Pause::Yield if threads => Pause::Sleep,
            pause => pause,
        }
    }

    /// Records that a sleep ended at `now`, and decides how long the reactor polls before the next
    /// sleep.
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
