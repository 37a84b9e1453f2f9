//! Whether other threads take the core on which this one polls.
//!
//! Why `unsafe` here: getrusage(2) has no safe wrapper in the crates we use.

use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// Polls that are so far apart may have had another thread on their core in between.
const TAKEN: Duration = Duration::from_micros(500);

/// What a thread that polls knows of its core.
#[derive(Debug, Default)]
pub struct Contention {
    /// The last round, if it was without work and without sleep.
    polled: Option<Instant>,
    /// How often the core had been taken from this thread, when it last looked.
    switches: i64,
}

impl Contention {
    /// The round that began `now` had no work, and the thread polls on.
    #[inline]
    pub fn polls_on(&mut self, now: Instant) {
        self.polled = Some(now);
    }

    /// Whether another thread has had the core since the last round, which polled.
    #[inline]
    pub fn core_was_taken(&mut self, now: Instant) -> bool {
        let polled = self.polled.take();
        polled.is_some_and(|polled| now.saturating_duration_since(polled) >= TAKEN)
            && self.was_switched()
    }

    /// Whether it was, and not the round that took so long, or the machine that stood still.
    #[cold]
    fn was_switched(&mut self) -> bool {
        let switches = involuntary_switches();
        std::mem::replace(&mut self.switches, switches) != switches
    }
}

/// How often the core was taken from this thread while it could have run on.
fn involuntary_switches() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the kernel fills in the structure, or fails.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) } != 0;
    assert!(!failed, "{}", std::io::Error::last_os_error());
    // SAFETY: it did not fail.
    unsafe { usage.assume_init() }.ru_nivcsw
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn only_a_long_time_between_polls_counts() {
        let mut core = Contention {
            polled: None,
            // No such count: whatever it is now, it differs.
            switches: -1,
        };
        let now = Instant::now();
        assert!(!core.core_was_taken(now), "before it has polled");
        core.polls_on(now);
        assert!(!core.core_was_taken(now + TAKEN - Duration::from_nanos(1)));
        core.polls_on(now);
        assert!(core.core_was_taken(now + TAKEN));
        assert!(!core.core_was_taken(now + TAKEN), "without another poll");
    }

    #[test]
    fn a_thread_beside_another_on_one_core_notices() {
        let Some(cpu) = first_core() else {
            return cairn_skips::skip("this thread's cores cannot be read");
        };
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                bind(cpu);
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            bind(cpu);
            let mut core = Contention::default();
            // Ends: two threads that never sleep take turns of milliseconds.
            loop {
                let now = Instant::now();
                if core.core_was_taken(now) {
                    break;
                }
                core.polls_on(now);
            }
            over.store(true, Ordering::Relaxed);
        });
    }

    fn first_core() -> Option<usize> {
        let set = rustix::thread::sched_getaffinity(None).ok()?;
        (0..rustix::thread::CpuSet::MAX_CPU).find(|&cpu| set.is_set(cpu))
    }

    fn bind(cpu: usize) {
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu);
        rustix::thread::sched_setaffinity(None, &set).expect("a core of its own may be chosen");
    }
}
