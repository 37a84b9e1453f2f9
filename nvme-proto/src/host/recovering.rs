//! After a loss: wait, try again, give up.

use core::time::Duration;

use super::{Association, Cause, Next, Phase, Report, State};

/// A controller that is lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    /// Since when.
    since: Duration,
    /// Tries to connect again, with the one that is under way.
    pub(super) tries: u32,
    /// Whether its commands no longer wait.
    failed_fast: bool,
}

impl Association {
    /// Something ended the association, or a try to make it again.
    pub(super) fn note_loss(&mut self, cause: Cause, now: Duration) {
        if self.going_up == State::Connecting {
            // Never reached: `recover` gives up.
            return;
        }
        self.going_up = State::Reconnecting { tries: 0 };
        if let Some(loss) = self.loss {
            let tries = loss.tries;
            self.report(Report::TryFailed { tries, cause });
        } else {
            self.loss = Some(Loss {
                since: now,
                tries: 0,
                failed_fast: false,
            });
            self.report(Report::Lost(cause));
        }
    }

    /// All connections are closed: waits for the time to try again, or gives up.
    pub(super) fn recover(&mut self, cause: Cause, now: Duration) {
        let recovery = self.settings.recovery;
        match self.loss {
            Some(loss) if !cause.is_final() && recovery.allows(loss.tries) => {
                let until = now + recovery.delay();
                self.phase = Phase::Waiting { until };
            }
            _ => self.proceed(Next::Gone(Some(cause)), now),
        }
    }

    pub(super) fn try_again(&mut self, now: Duration) {
        if let Some(loss) = &mut self.loss {
            loss.tries = loss.tries.saturating_add(1);
        }
        self.start_bring_up(now);
    }

    pub(super) fn going_up(&self) -> State {
        match (self.going_up, self.loss) {
            (State::Reconnecting { .. }, Some(loss)) => State::Reconnecting { tries: loss.tries },
            (state, _) => state,
        }
    }

    /// Whether commands wait for the controller no longer.
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
