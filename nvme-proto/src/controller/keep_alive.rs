//! Keep alive timer of an association (Base, 3.9).
//!
//! The association ends after KATO without a command on any queue (CTRATT.TBKAS). After KATO and
//! CQT without contact, a host may assume that its commands are no longer executed.

use alloc::vec::Vec;
use core::time::Duration;

use crate::limits;

use super::{Action, Controller, Termination};

/// Result of a timer check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The association continues.
    Alive,
    /// The timer expired.
    Expired,
}

/// Keep alive timer of one association.
#[derive(Debug)]
pub struct KeepAlive {
    kato_ms: u32,
    /// True if idle associations end even with KATO 0 (discovery controllers).
    ends_idle: bool,
    running: bool,
    last_command: Duration,
}

impl KeepAlive {
    /// Creates the timer with KATO of the Connect.
    #[must_use]
    pub fn new(kato_ms: u32, ends_idle: bool, now: Duration) -> Self {
        Self {
            kato_ms: round_up(kato_ms),
            ends_idle,
            running: false,
            last_command: now,
        }
    }

    /// KATO in milliseconds, rounded up to KAS; 0 if disabled.
    #[must_use]
    pub fn kato_ms(&self) -> u32 {
        self.kato_ms
    }

    /// Sets KATO and restarts the timer.
    pub fn set_kato(&mut self, kato_ms: u32, now: Duration) {
        self.kato_ms = round_up(kato_ms);
        self.restart(now);
    }

    /// Selects KATO if the controller is ready (`running`), else the idle limit, and restarts the
    /// timer.
    pub fn set_running(&mut self, running: bool, now: Duration) {
        self.running = running;
        self.restart(now);
    }

    /// Restarts the timer at `now`, but never moves it back.
    pub fn restart(&mut self, now: Duration) {
        self.last_command = self.last_command.max(now);
    }

    /// Time of the last known command.
    #[must_use]
    pub fn last_command(&self) -> Duration {
        self.last_command
    }

    /// Maximum time without a command; `None` for no limit.
    #[must_use]
    pub fn limit(&self) -> Option<Duration> {
        let ms = match (self.running, self.kato_ms) {
            (false, _) => limits::IDLE_ASSOCIATION_MS,
            (true, 0) if self.ends_idle => limits::IDLE_ASSOCIATION_MS,
            (true, 0) => return None,
            (true, kato_ms) => kato_ms,
        };
        Some(Duration::from_millis(u64::from(ms)))
    }

    /// Time at which the association ends without a command; `None` for no limit.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        Some(self.last_command + self.limit()?)
    }

    /// Checks the timer. `last` returns the time of the last command on any queue, and is called
    /// only if the timer seems expired.
    pub fn check(&mut self, now: Duration, last: impl FnOnce() -> Duration) -> Verdict {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return Verdict::Alive;
        }
        self.restart(last());
        if self.deadline().is_some_and(|deadline| now < deadline) {
            return Verdict::Alive;
        }
        Verdict::Expired
    }
}

impl Controller {
    /// Time at which the association ends without another admin command; `None` without a limit, or
    /// if already ending.
    ///
    /// Commands on I/O queues also extend the time, but are not known here.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        if self.condemned {
            None
        } else {
            self.keep_alive.deadline()
        }
    }

    /// Time of this controller's next [`Subsystem::poll`](crate::subsystem::Subsystem::poll).
    #[must_use]
    pub fn poll_at(&self) -> Option<Duration> {
        let times = [self.deadline(), self.cross_resets.deadline()];
        times.into_iter().flatten().min()
    }

    /// Time of the last known command, and [`KeepAlive::limit`]; `None` if the association is
    /// ending.
    #[must_use]
    pub fn lease(&self) -> Option<(Duration, Option<Duration>)> {
        (!self.condemned).then(|| (self.keep_alive.last_command(), self.keep_alive.limit()))
    }

    pub(crate) fn end_if_over(
        &mut self,
        now: Duration,
        last: impl FnOnce() -> Duration,
        actions: &mut Vec<Action>,
    ) {
        if !self.condemned && self.keep_alive.check(now, last) == Verdict::Expired {
            self.condemn();
            let (cntlid, reason) = (self.cntlid, Termination::KeepAliveExpired);
            actions.push(Action::Terminate { cntlid, reason });
        }
    }
}

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

    const SILENT: fn() -> Duration = || Duration::ZERO;

    #[test]
    fn a_silent_host_expires_at_kato() {
        let mut timer = running(5000);
        assert_eq!(timer.check(ms(4999), SILENT), Verdict::Alive);
        assert_eq!(timer.check(ms(5000), SILENT), Verdict::Expired);
    }

    #[test]
    fn a_command_restarts_the_timer() {
        let mut timer = running(5000);
        timer.restart(ms(4000));
        assert_eq!(timer.deadline(), Some(ms(9000)));
        assert_eq!(timer.check(ms(8999), SILENT), Verdict::Alive);
        assert_eq!(timer.check(ms(9000), SILENT), Verdict::Expired);
    }

    #[test]
    fn a_host_expires_at_kato_after_its_last_command_and_not_later() {
        let mut timer = running(1000);
        let last = || ms(10);
        assert_eq!(timer.check(ms(1000), last), Verdict::Alive);
        assert_eq!(timer.deadline(), Some(ms(1010)));
        assert_eq!(timer.check(ms(1009), last), Verdict::Alive);
        assert_eq!(timer.check(ms(1010), last), Verdict::Expired);
    }

    #[test]
    fn a_last_command_that_is_long_ago_does_not_help() {
        let mut timer = running(1000);
        assert_eq!(timer.check(ms(5000), || ms(3999)), Verdict::Expired);
    }

    #[test]
    fn other_queues_are_not_asked_before_the_time_seems_to_be_over() {
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
        assert_eq!(timer.check(ms(u64::MAX / 2), SILENT), Verdict::Alive);
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
