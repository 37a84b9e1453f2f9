//! Blocking host: a controller with a clock.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_rdma::{Device, Provider, sleep_until_ready};
use nvme_proto::host::State;
use nvme_proto::wire::{AdminOpcode, FabricsType, NvmOpcode, Sqe};

use crate::buffer::{Buffer, Data};
use crate::controller::Controller;
use crate::error::HostError;
use crate::event::Event;
use crate::namespace::Command;
use crate::options::HostOptions;
use crate::queue::{Ended, Response, Ticket};
use crate::waiting::{self, Waiting};

/// Bytes of the host's buffer for its own admin commands.
pub(crate) const SCRATCH_BYTES: usize = 64 * 1024;

/// A [`Controller`] for programs that may block: it reads the clock and has methods that wait for
/// completion.
#[derive(Debug)]
pub struct Host {
    controller: Controller,
    pub(crate) scratch: Buffer,
    timeout: Duration,
}

impl Deref for Host {
    type Target = Controller;
    fn deref(&self) -> &Controller {
        &self.controller
    }
}

impl DerefMut for Host {
    fn deref_mut(&mut self) -> &mut Controller {
        &mut self.controller
    }
}

impl Host {
    /// Creates an association: connects the admin queue, enables the controller and connects the
    /// I/O queues. Blocks.
    ///
    /// # Errors
    /// The first failure; then nothing stays connected.
    pub fn connect(provider: &dyn Provider, options: HostOptions) -> Result<Self, HostError> {
        let device = provider.device_for(options.remote, options.local)?;
        Self::connect_on(&device, options)
    }

    /// Connects like [`connect`](Self::connect), through a given device.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn connect_on(device: &Arc<dyn Device>, options: HostOptions) -> Result<Self, HostError> {
        let timeout = options.timeout;
        let controller = Controller::begin(device, options, Instant::now())?;
        let mut host = Self {
            scratch: controller.buffer(SCRATCH_BYTES)?,
            controller,
            timeout,
        };
        // Each step has its own time limit.
        while host.state() == State::Connecting {
            host.poll_or_sleep(Instant::now() + timeout)?;
        }
        // Sends pending acknowledgements, because the caller may not poll for a while.
        host.settle();
        match host.take_event() {
            Some(Event::Live { .. }) => Ok(host),
            Some(Event::Gone(Some(error))) => Err(error),
            other => unreachable!("connecting ends with Live or Gone, not {other:?}"),
        }
    }

    /// Returns the controller, for a program with its own clock.
    #[must_use]
    pub fn into_controller(self) -> Controller {
        self.controller
    }

    /// Changes the timeout of blocking calls.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Does all work that is due without waiting; returns whether there was any.
    pub fn poll(&mut self) -> bool {
        self.controller.poll(Instant::now())
    }

    /// Blocks until a command has ended: with a response, lost with its queue, or timed out
    /// ([`HostError::Timeout`]).
    ///
    /// On timeout a waiting command is removed. If the controller has the command, it counts as lost
    /// ([`Controller::give_up`]), and this returns once its connection is closed, so that nothing
    /// accesses the buffer.
    ///
    /// # Panics
    /// If the ticket is void.
    pub fn wait(&mut self, ticket: Ticket) -> Ended {
        loop {
            match self.wait_until("a response", |host| host.take(ticket)) {
                Ok(ended) => return ended,
                // The command is held and will be sent once that is safe.
                Err(HostError::Timeout { .. }) if self.is_held(ticket) => {}
                Err(error) => return self.end(ticket, error),
            }
        }
    }

    /// Ends a command without a response in time.
    fn end(&mut self, ticket: Ticket, why: HostError) -> Ended {
        self.give_up(ticket);
        loop {
            if let Some(ended) = self.take(ticket) {
                let answer = ended.answer.map_err(|_| why);
                return Ended { answer, ..ended };
            }
            waiting::step(self);
        }
    }

    /// Submits a command, waits for its end ([`wait`](Self::wait)), and turns any status except
    /// success into an error. The command has the buffer until then.
    ///
    /// # Errors
    /// As for [`Controller::submit`], the reason of a missing response, or the status.
    pub fn run(
        &mut self,
        qid: u16,
        command: impl Into<Command>,
        data: Data<'_, &mut Buffer>,
    ) -> Result<Response, HostError> {
        let command = command.into();
        let ticket = self.submit(qid, command, data.lend())?;
        let response = self.wait(ticket).answer?;
        response.require_success(|| command_name(qid, &command.sqe))
    }

    /// Runs a command of the admin queue.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub fn run_admin(
        &mut self,
        sqe: Sqe,
        data: Data<'_, &mut Buffer>,
    ) -> Result<Response, HostError> {
        self.run(0, Command::admin(sqe), data)
    }

    /// Polls until `ready` returns a value. Blocks.
    ///
    /// # Errors
    /// The host's timeout is over, or the device is gone.
    pub fn wait_until<T>(
        &mut self,
        what: impl Into<String>,
        ready: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, HostError> {
        let timeout = self.timeout;
        waiting::wait_until(self, what, timeout, ready)
    }

    /// Next command of queue `qid` that ends, or `None` after `patience`.
    ///
    /// For callers that poll again soon: pending acknowledgements are sent with their next
    /// commands.
    ///
    /// # Errors
    /// The device is gone.
    pub fn wait_any(
        &mut self,
        qid: u16,
        patience: Duration,
    ) -> Result<Option<(Ticket, Ended)>, HostError> {
        match waiting::poll_until(self, "an answer", patience, |host| host.reap(qid)) {
            Ok(next) => Ok(Some(next)),
            Err(HostError::Timeout { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Shuts the controller down, then ends all connections. Blocks.
    ///
    /// # Errors
    /// [`HostError::NotShutDown`] if the controller does not report the shutdown as complete in
    /// time, reports a fatal error with it, or is lost; or a connection does not close.
    pub fn shutdown(mut self) -> Result<(), HostError> {
        self.controller.shutdown();
        self.wait_gone().map_err(|error| match error {
            HostError::Timeout { .. } => HostError::NotShutDown(Box::new(error)),
            error => error,
        })
    }

    /// Ends all connections without a shutdown. Blocks.
    ///
    /// # Errors
    /// They do not close in time.
    pub fn disconnect(mut self) -> Result<(), HostError> {
        self.controller.disconnect();
        self.wait_gone()
    }

    /// Disconnects one I/O queue, as a host with too many queues does.
    ///
    /// # Errors
    /// Its connection does not close in time.
    pub fn close_queue(&mut self, qid: u16) -> Result<(), HostError> {
        self.release_queue(qid)?;
        self.wait_until(format!("the end of queue {qid}"), |host| {
            host.is_closed(qid).then_some(())
        })
    }

    /// Resets the controller and blocks until it is live again.
    ///
    /// # Errors
    /// It is not live in time, or is lost permanently.
    pub fn reset(&mut self) -> Result<(), HostError> {
        self.controller.reset();
        self.wait_live()
    }

    /// Blocks until the controller accepts commands, for example after a loss.
    ///
    /// # Errors
    /// It is not live in time, or is lost permanently.
    pub fn wait_live(&mut self) -> Result<(), HostError> {
        self.wait_until("a controller that takes commands", |host| {
            matches!(host.state(), State::Live | State::Gone).then_some(())
        })?;
        if self.is_live() {
            return Ok(());
        }
        Err(self.gone().unwrap_or_else(|| self.lost_for_good()))
    }

    fn wait_gone(&mut self) -> Result<(), HostError> {
        self.wait_until("the end of all connections", |host| {
            (host.state() == State::Gone).then_some(())
        })?;
        self.gone().map_or(Ok(()), Err)
    }

    /// Error with which the controller ended, if any.
    fn gone(&mut self) -> Option<HostError> {
        while let Some(event) = self.take_event() {
            if let Event::Gone(error) = event {
                return error;
            }
        }
        None
    }

    fn poll_or_sleep(&mut self, latest: Instant) -> Result<(), HostError> {
        if !self.poll() {
            self.sleep_until(latest)?;
        }
        Ok(())
    }
}

impl Waiting for Host {
    fn poll_now(&mut self) -> bool {
        self.poll()
    }

    fn sleep_until(&mut self, latest: Instant) -> Result<(), HostError> {
        let wake = self.next_deadline().unwrap_or(latest).min(latest);
        Ok(sleep_until_ready(self.endpoint(), wake)?)
    }

    fn settle(&mut self) {
        // Fails only for a removed device, which has no acknowledgement to send.
        let _ = self.endpoint().arm();
    }
}

pub(crate) fn command_name(qid: u16, sqe: &Sqe) -> String {
    if sqe.is_fabrics() {
        FabricsType(sqe.fctype().0).to_string()
    } else if qid == 0 {
        AdminOpcode(sqe.opc).to_string()
    } else {
        NvmOpcode(sqe.opc).to_string()
    }
}
