use core::time::Duration;

use super::{Association, AssociationState, Cause, Next, Phase, Report};

#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    since: Duration,
    pub(super) tries: u32,
    failed_fast: bool,
    cause: Cause,
}

impl Association {
    pub(super) fn note_loss(&mut self, cause: Cause, now: Duration) {
        if self.going_up == AssociationState::Connecting {
            return;
        }
        self.going_up = AssociationState::Reconnecting { tries: 0 };
        if let Some(loss) = &mut self.loss {
            loss.cause = cause;
            let tries = loss.tries;
            self.report(Report::TryFailed { tries, cause });
        } else {
            self.loss = Some(Loss {
                since: now,
                tries: 0,
                failed_fast: false,
                cause,
            });
            self.report(Report::Lost(cause));
        }
    }

    /// Schedules a reconnection or ends the association, after all connections closed.
    pub(super) fn recover(&mut self, cause: Cause, now: Duration) {
        let recovery = self.settings.recovery;
        match self.loss {
            Some(loss)
                if !cause.is_final() && recovery.allows(loss.tries) && !self.is_over(now) =>
            {
                let until = now + recovery.delay();
                let until = self.give_up_at().map_or(until, |end| end.min(until));
                self.phase = Phase::Waiting { until };
            }
            _ => self.proceed(Next::Gone(Some(cause)), now),
        }
    }

    pub(super) fn try_again(&mut self, now: Duration) {
        if let Some(loss) = self.loss
            && self.is_over(now)
        {
            return self.proceed(Next::Gone(Some(loss.cause)), now);
        }
        if let Some(loss) = &mut self.loss {
            loss.tries = loss.tries.saturating_add(1);
        }
        self.start_bring_up(now);
    }

    pub(super) fn check_loss(&mut self, now: Duration) {
        if self.try_ends_at().is_some_and(|end| now >= end) {
            self.fail(self.overdue(), now);
        }
    }

    pub(super) fn try_ends_at(&self) -> Option<Duration> {
        let is_try = matches!(self.phase, Phase::BringUp(_));
        self.give_up_at().filter(|_| is_try)
    }

    fn give_up_at(&self) -> Option<Duration> {
        let tmo = self.settings.recovery.ctrl_loss_tmo?;
        Some(self.loss?.since + tmo)
    }

    fn is_over(&self, now: Duration) -> bool {
        self.give_up_at().is_some_and(|end| now >= end)
    }

    pub(super) fn going_up(&self) -> AssociationState {
        match (self.going_up, self.loss) {
            (AssociationState::Reconnecting { .. }, Some(loss)) => {
                AssociationState::Reconnecting { tries: loss.tries }
            }
            (state, _) => state,
        }
    }

    /// True after `fast_io_fail_tmo`: commands must fail instead of waiting.
    #[must_use]
    pub fn fails_fast(&self) -> bool {
        self.loss.is_some_and(|loss| loss.failed_fast)
    }

    pub(super) fn fail_fast_at(&self) -> Option<Duration> {
        let loss = self.loss.filter(|loss| !loss.failed_fast)?;
        let tmo = self.settings.recovery.fast_io_fail_tmo?;
        Some(loss.since + tmo)
    }

    pub(super) fn check_fail_fast(&mut self, now: Duration) {
        if self.fail_fast_at().is_none_or(|at| now < at) {
            return;
        }
        if let Some(loss) = &mut self.loss {
            loss.failed_fast = true;
        }
        self.report(Report::FailFast);
    }
}
