//! Why `unsafe` here: getrusage(2) has no safe wrapper.

use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// Time between two polls from which another thread may have used the core.
const TAKEN: Duration = Duration::from_micros(500);

/// Lost time from which the core counts as shared.
const LOST_MAX: Duration = Duration::from_millis(10);
/// The lost time decreases by 1 / `LOST_PART` of the elapsed time.
const LOST_PART: u32 = 4;

/// Detects other threads on a polling thread's core.
#[derive(Debug, Default)]
pub struct Contention {
    polled: Option<Instant>,
    lost: Option<(Duration, Instant)>,
    switches: i64,
}

impl Contention {
    #[inline]
    pub fn polls_on(&mut self, now: Instant) {
        self.polled = Some(now);
    }

    /// True if other threads take so much of the core that this thread should sleep between polls.
    #[inline]
    pub fn core_is_shared(&mut self, now: Instant) -> bool {
        let polled = self.polled.take();
        let gap = polled.map_or(Duration::ZERO, |polled| {
            now.saturating_duration_since(polled)
        });
        gap >= TAKEN && self.was_switched() && self.loses_too_much(now, gap)
    }

    #[cold]
    fn loses_too_much(&mut self, now: Instant, gap: Duration) -> bool {
        let before = self.lost.map_or(Duration::ZERO, |(lost, at)| {
            lost.saturating_sub(now.saturating_duration_since(at) / LOST_PART)
        });
        let lost = before + gap;
        let too_much = lost >= LOST_MAX;
        self.lost = (!too_much).then_some((lost, now));
        too_much
    }

    #[cold]
    fn was_switched(&mut self) -> bool {
        let switches = involuntary_switches();
        std::mem::replace(&mut self.switches, switches) != switches
    }
}

fn involuntary_switches() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the kernel fills in the structure, or fails.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) } != 0;
    assert!(!failed, "{}", std::io::Error::last_os_error());
    // SAFETY: the call did not fail.
    unsafe { usage.assume_init() }.ru_nivcsw
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn shares(taken: Duration, kept: Duration) -> bool {
        let (mut core, mut now) = (Contention::default(), Instant::now());
        (0..1000).any(|_| {
            now += kept;
            core.polls_on(now);
            now += taken;
            core.switches = -1;
            core.core_is_shared(now)
        })
    }

    #[test]
    fn only_who_loses_much_shares() {
        let ms = Duration::from_millis;
        assert!(shares(ms(4), ms(4)));
        assert!(shares(ms(3), ms(6)));
        assert!(!shares(ms(4), ms(40)), "to a process of low priority");
        assert!(
            !shares(TAKEN - Duration::from_nanos(1), TAKEN),
            "rounds that took long"
        );
    }

    #[test]
    fn only_between_polls_is_time_lost() {
        let (mut core, now) = (Contention::default(), Instant::now());
        core.switches = -1;
        assert!(!core.core_is_shared(now), "before it has polled");
        core.polls_on(now);
        assert!(core.core_is_shared(now + LOST_MAX));
        core.switches = -1;
        assert!(!core.core_is_shared(now + LOST_MAX), "without another poll");
    }

    #[test]
    fn a_thread_beside_another_on_one_core_notices() {
        let cpu = match first_core() {
            Ok(cpu) => cpu,
            Err(error) => return cairn_skips::skip(format_args!("sched_getaffinity: {error}")),
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
            loop {
                let now = Instant::now();
                if core.core_is_shared(now) {
                    break;
                }
                core.polls_on(now);
            }
            over.store(true, Ordering::Relaxed);
        });
    }

    fn first_core() -> rustix::io::Result<usize> {
        let set = rustix::thread::sched_getaffinity(None)?;
        let mut cpus = 0..rustix::thread::CpuSet::MAX_CPU;
        Ok(cpus
            .find(|&cpu| set.is_set(cpu))
            .expect("a thread has a core"))
    }

    fn bind(cpu: usize) {
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu);
        rustix::thread::sched_setaffinity(None, &set).expect("a core of its own may be chosen");
    }
}
