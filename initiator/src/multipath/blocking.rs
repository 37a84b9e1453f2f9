use std::time::{Duration, Instant};

use cairn_base::wake::pollfd;
use cairn_rdma::{Provider, sleep_beside, sleep_until_any_ready};
use nvme_proto::host::AssociationState;
use nvme_proto::wire::Sqe;

use super::{Multipath, MultipathOptions, PathEvent, PathTicket};
use crate::buffer::{Buffer, Data};
use crate::error::HostError;
use crate::event::Event;
use crate::host::command_name;
use crate::options::HostOptions;
use crate::queue::{Ended, Response};
use crate::waiting::{self, Waiting};

impl Multipath {
    /// Connects `paths`. Blocks until each path is usable or has failed. After the timeout, one
    /// usable path is enough.
    ///
    /// As with `nvme connect`, a path whose first connection fails is not tried again. A path lost
    /// later is reconnected.
    ///
    /// # Errors
    /// The first error of a path, if no path is usable.
    ///
    /// # Panics
    /// If `paths` is empty.
    pub fn connect(
        provider: &dyn Provider,
        paths: impl IntoIterator<Item = HostOptions>,
        options: MultipathOptions,
    ) -> Result<Self, HostError> {
        let with_device = |host: HostOptions| {
            let device = provider.device_for(host.remote, host.local)?;
            Ok((device, host))
        };
        let paths: Vec<_> = paths
            .into_iter()
            .map(with_device)
            .collect::<Result<_, HostError>>()?;
        let mut multipath = Self::begin(paths, options, Instant::now())?;
        let patience = Instant::now() + multipath.timeout;
        while multipath.is_trying() {
            let now = Instant::now();
            if now >= patience && multipath.has_usable_path() {
                break;
            }
            if !multipath.poll(now) {
                multipath.sleep(now + multipath.timeout)?;
            }
        }
        if multipath.has_usable_path() {
            Ok(multipath)
        } else {
            Err(multipath.why_unusable())
        }
    }

    fn is_trying(&self) -> bool {
        self.paths.iter().any(|path| {
            let state = path.controller.state();
            state == AssociationState::Connecting
                || state == AssociationState::Live && path.is_asking()
        })
    }

    /// True if a path is usable. Otherwise, commands wait.
    #[must_use]
    pub fn has_usable_path(&self) -> bool {
        (0..self.paths.len()).any(|path| self.set.is_usable(path))
    }

    fn why_unusable(&mut self) -> HostError {
        while let Some((_, event)) = self.take_event() {
            match event {
                PathEvent::Controller(Event::Gone(Some(error))) => return error,
                PathEvent::Refused(why) => return HostError::Unsupported(why),
                _ => {}
            }
        }
        self.no_path()
    }

    /// Blocks until a command has ended. The timeout acts as in [`Host::wait`](crate::Host::wait),
    /// and also ends a wait for a path.
    pub fn wait(&mut self, ticket: PathTicket) -> Ended {
        let why = match self.wait_until("a response", |multipath| multipath.take(ticket)) {
            Ok(ended) => return ended,
            Err(why) => why,
        };
        if let Some((path, there)) = self.ios.give_up(ticket, Self::no_time(self.timeout)) {
            self.paths[path].controller.give_up(there);
        }
        loop {
            if let Some(ended) = self.take(ticket) {
                let answer = ended.answer.map_err(|_| why);
                return Ended { answer, ..ended };
            }
            waiting::step(self);
        }
    }

    fn no_time(timeout: Duration) -> HostError {
        let what = "a path for a command".to_owned();
        HostError::Timeout { what, timeout }
    }

    /// Submits a command and blocks until it ends ([`wait`](Self::wait)).
    pub fn run(&mut self, sqe: Sqe, data: Data<'_, &mut Buffer>) -> Result<Response, HostError> {
        let ticket = self.submit(sqe, data.lend())?;
        let response = self.wait(ticket).answer?;
        response.require_success(|| command_name(1, &sqe))
    }

    /// Sets the timeout of blocking methods. The default is the paths' longest timeout.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Like [`Host::wait_until`](crate::Host::wait_until).
    pub fn wait_until<T>(
        &mut self,
        what: impl Into<String>,
        ready: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, HostError> {
        let timeout = self.timeout;
        waiting::wait_until(self, what, timeout, ready)
    }

    /// Like [`Host::wait_any`](crate::Host::wait_any), for commands on any path.
    pub fn wait_any(
        &mut self,
        patience: Duration,
    ) -> Result<Option<(PathTicket, Ended)>, HostError> {
        match waiting::poll_until(self, "an answer", patience, Self::reap) {
            Ok(next) => Ok(Some(next)),
            Err(HostError::Timeout { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sleeps until a poll may find work, at most until `latest`.
    pub fn sleep(&mut self, latest: Instant) -> Result<(), HostError> {
        let wake = self.next_deadline().unwrap_or(latest).min(latest);
        let endpoints = self.paths.iter_mut().map(|path| path.controller.endpoint());
        Ok(sleep_until_any_ready(endpoints, wake)?)
    }

    /// Like [`Self::sleep`], and ends when one of `others` has an event (poll(2)).
    pub fn sleep_beside(&mut self, others: &[pollfd], latest: Instant) -> Result<(), HostError> {
        let wake = self.next_deadline().unwrap_or(latest).min(latest);
        let endpoints = self.paths.iter_mut().map(|path| path.controller.endpoint());
        Ok(sleep_beside(endpoints, others, wake)?)
    }

    /// Shuts down the live controllers. Blocks until all connections are closed.
    ///
    /// # Errors
    /// A connection does not close in time, or a live controller does not confirm its shutdown
    /// ([`HostError::NotShutDown`]).
    pub fn close(mut self) -> Result<(), HostError> {
        let was_live = |path: &super::Path| path.controller.is_live();
        let live: Vec<bool> = self.paths.iter().map(was_live).collect();
        self.shutdown();
        self.wait_until("the end of all connections", |multipath| {
            let gone = |path: &super::Path| path.controller.state() == AssociationState::Gone;
            multipath.paths.iter().all(gone).then_some(())
        })?;
        while let Some((path, event)) = self.take_event() {
            match event {
                PathEvent::Controller(Event::Gone(Some(error))) if live[path] => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Waiting for Multipath {
    fn poll_now(&mut self) -> bool {
        self.poll(Instant::now())
    }

    fn sleep_until(&mut self, latest: Instant) -> Result<(), HostError> {
        self.sleep(latest)
    }

    fn settle(&mut self) {
        for path in &mut self.paths {
            let _ = path.controller.endpoint().arm();
        }
    }
}
