//! Events of a controller for its user.

use std::collections::VecDeque;

use nvme_proto::host::Notice;

use crate::error::HostError;

/// Maximum pending events; beyond that, the oldest are dropped.
const WAITING_MAX: usize = 64;

/// Event of a controller.
#[derive(Debug)]
pub enum Event {
    /// The controller accepts commands, for the first time or again.
    Live {
        /// Attempts to reconnect; 0 the first time and after a reset.
        tries: u32,
    },
    /// The controller is lost. It is reconnected if [`Recovery`](crate::Recovery) says so;
    /// otherwise [`Event::Gone`] follows.
    Lost(HostError),
    /// An attempt to reconnect failed; another follows.
    TryFailed {
        /// Number of attempts so far.
        tries: u32,
        /// Error of the attempt.
        error: HostError,
    },
    /// Commands no longer wait for the controller (`fast_io_fail_tmo`).
    FailFast,
    /// The controller is lost permanently; `None` after a requested end.
    Gone(Option<HostError>),
    /// The controller reported an event: read the corresponding log page.
    Notice(Notice),
    /// Each queue has authenticated again.
    Reauthenticated,
    /// The target refuses to authenticate this host again, for example because its key was removed.
    /// The connections continue unchanged.
    NotReauthenticated(HostError),
}

#[derive(Debug, Default)]
pub(crate) struct Events(VecDeque<Event>);

impl Events {
    /// Adds an event; a notice that is pending already is not repeated.
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
