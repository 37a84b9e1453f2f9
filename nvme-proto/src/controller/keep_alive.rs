//! The keep alive timer of an association (Base, 3.9).
//!
//! It is traffic based (CTRATT.TBKAS): at the end of each interval the
//! association lives on if any command came in during it, and a Keep Alive
//! command restarts the interval. Hence a dead host is noticed after one to two
//! KATO.
//!
//! By the letter the timer runs only while the controller is ready and not shut
//! down. A host that connects and never enables, or shuts down and never leaves,
//! would then keep its controller for ever; where the timer does not run, the
//! idle limit of [`limits::IDLE_ASSOCIATION_MS`] does.

use core::time::Duration;

use crate::limits;

/// What becomes of the association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It lives on.
    Alive,
    /// The host is gone.
    Expired,
}

/// The timer.
#[derive(Debug)]
pub struct KeepAlive {
    kato_ms: u32,
    /// Whether an association without KATO ends when idle, as on a discovery controller.
    ends_idle: bool,
    running: bool,
    started: Duration,
    traffic: bool,
}

impl KeepAlive {
    /// The timer of an association that begins now. `kato_ms` is as the host gave it.
    #[must_use]
    pub fn new(kato_ms: u32, ends_idle: bool, now: Duration) -> Self {
        Self {
            kato_ms: round_up(kato_ms),
            ends_idle,
            running: false,
            started: now,
            traffic: false,
        }
    }

    /// KATO, rounded up to the timer's granularity; 0 if disabled.
    #[must_use]
    pub fn kato_ms(&self) -> u32 {
        self.kato_ms
    }

    /// Sets KATO, and restarts the timer.
    pub fn set_kato(&mut self, kato_ms: u32, now: Duration) {
        self.kato_ms = round_up(kato_ms);
        self.restart(now);
    }

    /// The controller became ready, or ceased to be: the timer runs from now, or the idle limit.
    pub fn set_running(&mut self, running: bool, now: Duration) {
        self.running = running;
        self.restart(now);
    }

    /// A Keep Alive command.
    pub fn restart(&mut self, now: Duration) {
        self.started = now;
        self.traffic = false;
    }

    /// Some other command.
    pub fn note_traffic(&mut self) {
        self.traffic = true;
    }

    /// When to [`Self::check`]; `None` if nothing but a lost connection ends the association.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let ms = match (self.running, self.kato_ms) {
            (false, _) => limits::IDLE_ASSOCIATION_MS,
            (true, 0) if self.ends_idle => limits::IDLE_ASSOCIATION_MS,
            (true, 0) => return None,
            (true, kato_ms) => kato_ms,
        };
        Some(self.started + Duration::from_millis(u64::from(ms)))
    }

    /// Looks at the timer. `io_traffic` tells, and is only asked at the end of an
    /// interval, whether an I/O command came in since it was last asked.
    pub fn check(&mut self, now: Duration, io_traffic: impl FnOnce() -> bool) -> Verdict {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return Verdict::Alive;
        }
        // Both are asked: I/O of this interval must not count for the next one.
        if io_traffic() | self.traffic {
            self.restart(now);
            return Verdict::Alive;
        }
        Verdict::Expired
    }
}

/// Rounded up to the granularity that KAS announces; what would not fit is as good as for ever.
fn round_up(kato_ms: u32) -> u32 {
    let unit_ms = u32::from(limits::KAS) * 100;
    kato_ms.div_ceil(unit_ms).saturating_mul(unit_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn running(kato_ms: u32) -> KeepAlive {
        let mut timer = KeepAlive::new(kato_ms, false, ms(0));
        timer.set_running(true, ms(0));
        timer
    }

    #[test]
    fn kato_is_rounded_up_to_the_granularity() {
        for (asked, granted) in [(0, 0), (1, 100), (100, 100), (101, 200), (5000, 5000)] {
            assert_eq!(running(asked).kato_ms(), granted);
        }
        assert_eq!(running(u32::MAX).kato_ms(), u32::MAX);
    }

    #[test]
    fn a_silent_host_expires_at_kato() {
        let mut timer = running(5000);
        assert_eq!(timer.check(ms(4999), || false), Verdict::Alive);
        assert_eq!(timer.check(ms(5000), || false), Verdict::Expired);
    }

    #[test]
    fn a_keep_alive_command_restarts_the_timer() {
        let mut timer = running(5000);
        timer.restart(ms(4000));
        assert_eq!(timer.deadline(), Some(ms(9000)));
        assert_eq!(timer.check(ms(8999), || false), Verdict::Alive);
        assert_eq!(timer.check(ms(9000), || false), Verdict::Expired);
    }

    #[test]
    fn traffic_counts_for_its_own_interval_only() {
        let mut timer = running(1000);
        timer.note_traffic();
        let mut io = true;
        let mut take_io = || core::mem::take(&mut io);
        assert_eq!(timer.check(ms(1000), &mut take_io), Verdict::Alive);
        assert_eq!(timer.check(ms(2000), &mut take_io), Verdict::Expired);
    }

    #[test]
    fn io_traffic_is_not_asked_before_the_interval_ends() {
        let mut timer = running(1000);
        assert_eq!(
            timer.check(ms(999), || panic!("asked too early")),
            Verdict::Alive
        );
    }

    #[test]
    fn without_kato_a_ready_controller_never_expires_but_an_unready_one_does() {
        let mut timer = running(0);
        assert_eq!(timer.deadline(), None);
        assert_eq!(timer.check(ms(u64::MAX / 2), || false), Verdict::Alive);
        timer.set_running(false, ms(10));
        assert_eq!(timer.deadline(), Some(ms(120_010)));
    }

    #[test]
    fn a_discovery_association_without_kato_lasts_two_idle_minutes() {
        let mut timer = KeepAlive::new(0, true, ms(0));
        timer.set_running(true, ms(0));
        assert_eq!(timer.deadline(), Some(ms(120_000)));
        timer.set_kato(30_000, ms(0));
        assert_eq!(timer.deadline(), Some(ms(30_000)));
    }
}
