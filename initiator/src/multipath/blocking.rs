//! A [`Multipath`] for programs that may wait.

use std::time::{Duration, Instant};

use cairn_rdma::{Provider, sleep_until_any_ready};
use nvme_proto::host::State;
use nvme_proto::wire::Sqe;

use super::{Ended, Multipath, MultipathOptions, PathBuffer, PathEvent, PathTicket};
use crate::error::HostError;
use crate::event::Event;
use crate::host::command_name;
use crate::options::HostOptions;
use crate::queue::Response;
use crate::waiting::{self, Waiting};

impl Multipath {
    /// Connects each of `paths`, and waits until one of them is usable and the others
    /// have been tried. As with `nvme connect`, a controller that cannot be reached at
    /// all is not tried again; one that was reached and lost is.
    ///
    /// # Errors
    /// No path is usable: what was wrong with the first.
    ///
    /// # Panics
    /// If there is no path.
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
        // Each step on the way has a time limit of its own; a step that takes longer than
        // we care for may join later, if another path is there.
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

    /// Whether a path may prove usable any moment.
    fn is_trying(&self) -> bool {
        self.paths.iter().any(|path| {
            let state = path.controller.state();
            state == State::Connecting || state == State::Live && path.is_asking()
        })
    }

    /// Whether a command would be sent at once, were there room.
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

    /// Blocks until a command has ended: it was answered, or no path is left for it, or the
    /// timeout is over ([`HostError::Timeout`]). A command that has no answer by then is taken
    /// out if it waits. If it is on its way, its controller counts as lost, as after
    /// [`HostOptions::command_timeout`], and this returns when the connection is closed: no path
    /// reaches the buffer any more.
    ///
    /// # Panics
    /// If the ticket is void.
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
            // A device that fails here reports the end of its connections as an event.
            waiting::step(self);
        }
    }

    fn no_time(timeout: Duration) -> HostError {
        let what = "a path for a command".to_owned();
        HostError::Timeout { what, timeout }
    }

    /// Sends a command, blocks until it has ended ([`wait`](Self::wait)), and makes an error of
    /// any status but success. The command has the buffer until then.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit), or why the command has no answer, or the status.
    ///
    /// # Panics
    /// As [`submit`](Self::submit).
    pub fn run(
        &mut self,
        sqe: Sqe,
        data: Option<(&mut PathBuffer, usize, u32)>,
    ) -> Result<Response, HostError> {
        let lend =
            |(buffer, offset, length): (&mut PathBuffer, _, _)| (buffer.lend(), offset, length);
        let ticket = self.submit(sqe, data.map(lend))?;
        let response = self.wait(ticket).answer?;
        let status = response.cqe.status();
        if status.is_success() {
            return Ok(response);
        }
        Err(HostError::Status {
            command: command_name(1, &sqe),
            status,
            result: response.cqe.result(),
        })
    }

    /// Changes the patience of what blocks, which is that of the most patient path.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Blocks until `ready` gives something, polling meanwhile.
    ///
    /// # Errors
    /// It does not in time, or a device is gone.
    pub fn wait_until<T>(
        &mut self,
        what: impl Into<String>,
        ready: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, HostError> {
        let timeout = self.timeout;
        waiting::wait_until(self, what, timeout, ready)
    }

    /// The next command that ends, or `None` if none does in time. For callers who poll
    /// again before long: what is owed to targets leaves with what they send next.
    ///
    /// # Errors
    /// A device is gone.
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

    /// Sleeps until there is something to poll, or until `latest`. It may return early;
    /// it does not poll.
    ///
    /// # Errors
    /// A device is gone.
    pub fn sleep(&mut self, latest: Instant) -> Result<(), HostError> {
        let wake = self.next_deadline().unwrap_or(latest).min(latest);
        let endpoints = self.paths.iter_mut().map(|path| path.controller.endpoint());
        Ok(sleep_until_any_ready(endpoints, wake)?)
    }

    /// Shuts all controllers down in order, and waits until their connections are gone.
    /// One that was lost before is not missed.
    ///
    /// # Errors
    /// They do not go in time, or one that was live does not confirm its shutdown
    /// ([`HostError::NotShutDown`]).
    pub fn close(mut self) -> Result<(), HostError> {
        let was_live = |path: &super::Path| path.controller.is_live();
        let live: Vec<bool> = self.paths.iter().map(was_live).collect();
        self.shutdown();
        self.wait_until("the end of all connections", |multipath| {
            let gone = |path: &super::Path| path.controller.state() == State::Gone;
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
            // A device that is gone owes nothing.
            let _ = path.controller.endpoint().arm();
        }
    }
}
