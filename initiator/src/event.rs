//! Events that a controller reports to its user.

use std::collections::VecDeque;

use nvme_proto::host::Notice;

use crate::error::HostError;

/// Events that wait to be taken, at most. Past that, the oldest go.
const WAITING_MAX: usize = 64;

/// Something happened to a controller.
#[derive(Debug)]
pub enum Event {
    /// It takes commands: for the first time, or again.
    Live {
        /// Tries that it took to get it back; 0 the first time and after a reset.
        tries: u32,
    },
    /// It is lost. It will be connected to again if [`Recovery`](crate::Recovery)
    /// says so; else [`Event::Gone`] follows.
    Lost(HostError),
    /// A try to connect again failed; there will be another.
    TryFailed {
        /// How many that were.
        tries: u32,
        /// Why.
        error: HostError,
    },
    /// Commands do not wait for it any longer (`fast_io_fail_tmo`).
    FailFast,
    /// The end: it will not come back. `None`: as was asked for.
    Gone(Option<HostError>),
    /// It reported an event: read the log page that this stands for.
    Notice(Notice),
    /// Each queue has authenticated again.
    Reauthenticated,
    /// The target does not let this host authenticate again, as one that has no key for it any
    /// more. The connections go on as they are.
    NotReauthenticated(HostError),
}

/// Events that were not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Events(VecDeque<Event>);

impl Events {
    /// Adds one; a notice that waits already is not reported twice.
    pub(crate) fn push(&mut self, event: Event) {
        let same = |waiting: &Event| match (waiting, &event) {
            (Event::Notice(a), Event::Notice(b)) => a == b,
            (Event::Reauthenticated, Event::Reauthenticated) => true,
            _ => false,
        };
        if self.0.iter().any(same) {
            return;
        }
        if self.0.len() == WAITING_MAX {
            self.0.pop_front();
        }
        self.0.push_back(event);
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.0.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_that_never_stops_reporting_fills_no_memory() {
        let mut events = Events::default();
        events.push(Event::Live { tries: 0 });
        for _ in 0..1000 {
            events.push(Event::Notice(Notice::AnaChanged));
        }
        for tries in 0..1000 {
            events.push(Event::Live { tries });
        }
        let mut count = 0;
        while events.pop().is_some() {
            count += 1;
        }
        assert_eq!(count, WAITING_MAX);
    }
}
