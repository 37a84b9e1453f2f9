//! Probes that check whether the peer still has its queue pair.

use crate::time::Instant;
use core::time::Duration;

const INTERVAL: Duration = Duration::from_millis(100);
/// Minimum and maximum time without an answer after which the peer's queue pair counts as lost.
const SILENCE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

#[derive(Debug)]
pub(super) struct Question {
    silence: Duration,
    asked: Option<Asked>,
    is_due: bool,
}

#[derive(Debug, Clone, Copy)]
struct Asked {
    next: Instant,
    until: Instant,
}

impl Question {
    pub(super) fn new(patience: Option<Duration>) -> Self {
        let (least, most) = SILENCE;
        Self {
            silence: patience.unwrap_or(most).clamp(least, most),
            asked: None,
            is_due: false,
        }
    }

    pub(super) fn ask(&mut self, now: Instant) {
        if self.asked.is_none() {
            self.is_due = true;
            self.asked = Some(Asked {
                next: now + INTERVAL,
                until: now + self.silence,
            });
        }
    }

    pub(super) fn answered(&mut self) {
        self.asked = None;
        self.is_due = false;
    }

    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    pub(super) fn take_due(&mut self) -> bool {
        core::mem::take(&mut self.is_due)
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.asked.map(|asked| asked.next.min(asked.until))
    }

    pub(super) fn goes_unanswered(&mut self, now: Instant) -> bool {
        let Some(asked) = &mut self.asked else {
            return false;
        };
        if asked.until <= now {
            self.answered();
            return true;
        }
        if asked.next <= now {
            asked.next = now + INTERVAL;
            self.is_due = true;
        }
        false
    }
}
