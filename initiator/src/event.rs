use std::collections::VecDeque;

use nvme_proto::host::Notice;

use crate::error::HostError;

/// Maximum queued events; a further event replaces the oldest.
const WAITING_MAX: usize = 64;

/// Event from [`Controller::take_event`](crate::Controller::take_event).
#[derive(Debug)]
pub enum Event {
    /// The controller accepts commands.
    Live {
        /// Attempts to reconnect; 0 for the first connection and after a reset.
        tries: u32,
    },
    /// The controller is lost. [`Recovery`](crate::Recovery) decides whether a reconnection or
    /// [`Event::Gone`] follows.
    Lost(HostError),
    /// An attempt to reconnect failed. Another attempt or [`Event::Gone`] follows.
    TryFailed {
        /// Attempts so far.
        tries: u32,
        /// Error of the last attempt.
        error: HostError,
    },
    /// `fast_io_fail_tmo` has expired. Commands now fail instead of waiting.
    FailFast,
    /// The controller has ended, with `None` if the caller requested it.
    Gone(Option<HostError>),
    /// The controller reported an asynchronous event.
    Notice(Notice),
    /// Each queue has authenticated again.
    Reauthenticated,
    /// A command of the reauthentication ended in an error status. The connections stay.
    NotReauthenticated(HostError),
}

#[derive(Debug, Default)]
pub(crate) struct Events(VecDeque<Event>);

impl Events {
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
