//! Probes that find out whether a peer still has its queue pair, after a message that denies it and
//! that a stranger may have sent. An answer of the peer proves the one, its silence the other.

use crate::time::Instant;
use core::time::Duration;

/// How often a peer is asked.
const INTERVAL: Duration = Duration::from_millis(100);
/// How long a peer may be silent at least, and at most. Its own patience lies between, if it has
/// an end.
const SILENCE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

#[derive(Debug)]
pub(super) struct Question {
    silence: Duration,
    asked: Option<Asked>,
    /// A probe is to leave.
    is_due: bool,
}

#[derive(Debug, Clone, Copy)]
struct Asked {
    next: Instant,
    until: Instant,
}

impl Question {
    /// For a peer that the queue pair believes to be alive for so long; `None` is for ever.
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

    /// Ends the question: the peer is there, or the answer does not matter any more.
    pub(super) fn answered(&mut self) {
        self.asked = None;
        self.is_due = false;
    }

    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// Whether a probe is to leave: once.
    pub(super) fn take_due(&mut self) -> bool {
        core::mem::take(&mut self.is_due)
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.asked.map(|asked| asked.next.min(asked.until))
    }

    /// Whether the peer has been silent for too long. If not, asks again when it is time.
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
