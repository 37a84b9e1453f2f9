//! What a host does without being asked each time: it keeps its controller
//! alive, and has requests for events outstanding.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use nvme_proto::wire::aen::AsyncEvent;

use crate::buffer::Data;
use crate::command;
use crate::error::{HostError, Loss};
use crate::host::Host;
use crate::queue::Ticket;

/// The state of a host's duties.
#[derive(Default)]
pub(crate) struct Duties {
    /// When the next Keep Alive is to be sent, if any.
    keep_alive_due: Option<Instant>,
    /// The one that is on its way.
    keep_alive: Option<Ticket>,
    event_requests: Vec<Ticket>,
    /// Reported, not yet taken.
    events: VecDeque<AsyncEvent>,
}

impl Duties {
    /// When the host must be polled for their sake.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        // While one is on its way, its answer is what to wait for.
        self.keep_alive_due.filter(|_| self.keep_alive.is_none())
    }
}

impl Host {
    /// Has up to `count` Asynchronous Event Requests outstanding from now on.
    ///
    /// # Errors
    /// The admin queue is full or lost.
    pub fn request_events(&mut self, count: usize) -> Result<(), HostError> {
        while self.duties.event_requests.len() < count {
            let ticket = self.submit(0, command::async_event_request(), Data::None)?;
            self.duties.event_requests.push(ticket);
        }
        Ok(())
    }

    /// The oldest event that has been reported and not yet taken.
    pub fn take_event(&mut self) -> Option<AsyncEvent> {
        self.duties.events.pop_front()
    }

    /// Starts the clock of the Keep Alives.
    pub(crate) fn begin_keep_alive(&mut self) {
        self.duties.keep_alive_due = self
            .keep_alive_interval()
            .map(|i| self.options.clock.now() + i);
    }

    /// Sends no more Keep Alives.
    pub(crate) fn end_keep_alive(&mut self) {
        self.duties.keep_alive_due = None;
    }

    /// Does what is due.
    pub(crate) fn attend(&mut self, now: Instant) {
        self.collect_events();
        self.stay_alive(now);
    }

    /// Takes the answers to event requests, and asks again.
    fn collect_events(&mut self) {
        for index in (0..self.duties.event_requests.len()).rev() {
            let Some(answer) = self.take(self.duties.event_requests[index]) else {
                continue;
            };
            self.duties.event_requests.swap_remove(index);
            let Ok(response) = answer else { continue };
            if response.cqe.status().is_success() {
                self.duties
                    .events
                    .push_back(AsyncEvent(response.cqe.dw0.get()));
                // If the queue is lost, the caller will hear of that elsewhere.
                if let Ok(ticket) = self.submit(0, command::async_event_request(), Data::None) {
                    self.duties.event_requests.push(ticket);
                }
            }
        }
    }

    /// Keep Alive is due every half of KATO (Base, 3.9).
    fn stay_alive(&mut self, now: Instant) {
        if let Some(ticket) = self.duties.keep_alive {
            match self.take(ticket) {
                None => return,
                // One that was on its way when the shutdown began fails, and may.
                Some(Ok(response))
                    if !response.cqe.status().is_success()
                        && self.duties.keep_alive_due.is_some() =>
                {
                    let status = response.cqe.status();
                    self.queues[0].lose(Loss::Protocol(format!("Keep Alive: {status}")));
                }
                Some(_) => {}
            }
            self.duties.keep_alive = None;
        }
        if self.duties.keep_alive_due.is_none_or(|due| now < due) {
            return;
        }
        if !self.is_up(0) {
            return self.end_keep_alive();
        }
        self.duties.keep_alive = self.submit(0, command::keep_alive(), Data::None).ok();
        self.duties.keep_alive_due = self.keep_alive_interval().map(|i| now + i);
    }

    fn keep_alive_interval(&self) -> Option<Duration> {
        let kato_ms = self.options.kato_ms;
        (kato_ms > 0).then(|| Duration::from_millis(u64::from(kato_ms) / 2))
    }
}
