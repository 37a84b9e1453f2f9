use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_rdma::{Device, Provider, sleep_until_ready};
use nvme_proto::host::AssociationState;
use nvme_proto::wire::identify::IdentifyController;
use nvme_proto::wire::{AdminOpcode, FabricsType, NvmOpcode, Sqe};

use crate::buffer::{Buffer, Data};
use crate::controller::Controller;
use crate::error::HostError;
use crate::event::Event;
use crate::namespace::Command;
use crate::options::HostOptions;
use crate::queue::{Ended, IoQueue, Response, Ticket, Unsent};
use crate::waiting::{self, Waiting};

pub(crate) const SCRATCH_BYTES: usize = 64 * 1024;

/// [`Controller`] with a clock, for programs that may block.
#[derive(Debug)]
pub struct Host {
    controller: Controller,
    pub(crate) scratch: Buffer,
    timeout: Duration,
}

impl Host {
    /// Connects the admin queue, enables the controller and connects the I/O queues. Blocks.
    ///
    /// # Errors
    /// The first error, after all connections were closed.
    pub fn connect(provider: &dyn Provider, options: HostOptions) -> Result<Self, HostError> {
        let device = provider.device_for(options.remote, options.local)?;
        Self::connect_on(&device, options)
    }

    /// Like [`connect`](Self::connect), through `device`.
    pub fn connect_on(device: &Arc<dyn Device>, options: HostOptions) -> Result<Self, HostError> {
        let timeout = options.timeout;
        let controller = Controller::begin(device, options, Instant::now())?;
        let mut host = Self {
            scratch: controller.buffer(SCRATCH_BYTES)?,
            controller,
            timeout,
        };
        while host.state() == AssociationState::Connecting {
            host.poll_or_sleep(Instant::now() + timeout)?;
        }
        host.settle();
        match host.take_event() {
            Some(Event::Live { .. }) => Ok(host),
            Some(Event::Gone(Some(error))) => Err(error),
            other => unreachable!("connecting ends with Live or Gone, not {other:?}"),
        }
    }

    /// Returns the controller, for a program that polls it.
    #[must_use]
    pub fn into_controller(self) -> Controller {
        self.controller
    }

    /// Controller, for queries.
    #[must_use]
    #[inline]
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// Controller, for calls that do not block.
    #[inline]
    pub fn controller_mut(&mut self) -> &mut Controller {
        &mut self.controller
    }

    /// Sets the timeout of blocking calls, instead of [`HostOptions::timeout`].
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Does pending work without waiting. Returns true if there was work.
    pub fn poll(&mut self) -> bool {
        self.controller.poll(Instant::now())
    }

    /// Blocks until a command has ended.
    ///
    /// After the timeout, the command ends in [`HostError::Timeout`]. If the command is in flight,
    /// the controller counts as lost ([`Controller::give_up`]), and this method waits until the
    /// controller can no longer access the buffer.
    ///
    /// The timeout does not apply to a command that a live controller has not sent yet.
    pub fn wait(&mut self, ticket: Ticket) -> Ended {
        loop {
            match self.wait_until("a response", |host| host.take(ticket)) {
                Ok(ended) => return ended,
                Err(HostError::Timeout { .. }) if self.controller.is_held(ticket) => {}
                Err(error) => return self.end(ticket, error),
            }
        }
    }

    fn end(&mut self, ticket: Ticket, why: HostError) -> Ended {
        self.controller.give_up(ticket);
        loop {
            if let Some(ended) = self.take(ticket) {
                let answer = ended.answer.map_err(|_| why);
                return Ended { answer, ..ended };
            }
            waiting::step(self);
        }
    }

    /// Like [`run_on`](Self::run_on), on the first I/O queue.
    pub fn run(
        &mut self,
        command: impl Into<Command>,
        data: Data<'_, &mut Buffer>,
    ) -> Result<Response, HostError> {
        self.run_on(IoQueue::FIRST, command, data)
    }

    /// Submits a command on an I/O queue and blocks until it ends ([`wait`](Self::wait)).
    ///
    /// # Errors
    /// The submission failed ([`Controller::submit_on`]), no response arrived, or the status is an
    /// error.
    pub fn run_on(
        &mut self,
        queue: IoQueue,
        command: impl Into<Command>,
        data: Data<'_, &mut Buffer>,
    ) -> Result<Response, HostError> {
        let command = command.into();
        let ticket = self.submit_on(queue, command, data.lend())?;
        let response = self.wait(ticket).answer?;
        response.require_success(|| command_name(queue.qid(), &command.sqe))
    }

    /// Like [`run_on`](Self::run_on), on the admin queue.
    pub fn run_admin(
        &mut self,
        sqe: Sqe,
        data: Data<'_, &mut Buffer>,
    ) -> Result<Response, HostError> {
        let ticket = self.submit_admin(sqe, data.lend())?;
        let response = self.wait(ticket).answer?;
        response.require_success(|| command_name(0, &sqe))
    }

    /// Polls until `ready` returns a value, or fails with [`HostError::Timeout`], which names
    /// `what`.
    pub fn wait_until<T>(
        &mut self,
        what: impl Into<String>,
        ready: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, HostError> {
        let timeout = self.timeout;
        waiting::wait_until(self, what, timeout, ready)
    }

    /// Blocks until a command of an I/O queue ends, or returns `None` after `patience`. The caller
    /// must poll again soon, because acknowledgements may be pending.
    pub fn wait_any(
        &mut self,
        queue: IoQueue,
        patience: Duration,
    ) -> Result<Option<(Ticket, Ended)>, HostError> {
        match waiting::poll_until(self, "an answer", patience, |host| host.reap(queue)) {
            Ok(next) => Ok(Some(next)),
            Err(HostError::Timeout { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Shuts the controller down and ends all connections. Blocks.
    ///
    /// # Errors
    /// [`HostError::NotShutDown`] if the controller is lost or does not confirm in time, or a
    /// connection does not close in time.
    pub fn shutdown(mut self) -> Result<(), HostError> {
        self.controller.shutdown();
        self.wait_gone().map_err(|error| match error {
            HostError::Timeout { .. } => HostError::NotShutDown(Box::new(error)),
            error => error,
        })
    }

    /// Ends all connections without shutting the controller down. Blocks.
    pub fn disconnect(mut self) -> Result<(), HostError> {
        self.controller.disconnect();
        self.wait_gone()
    }

    /// Closes an I/O queue permanently. Blocks until its connection is closed.
    pub fn close_queue(&mut self, queue: IoQueue) -> Result<(), HostError> {
        self.controller.release_queue(queue)?;
        self.wait_until(format!("the end of queue {}", queue.qid()), |host| {
            host.controller.is_closed(queue).then_some(())
        })
    }

    /// Resets the controller and blocks until it is live again.
    pub fn reset(&mut self) -> Result<(), HostError> {
        self.controller.reset();
        self.wait_live()
    }

    /// Blocks until the controller is live again after a loss.
    pub fn wait_live(&mut self) -> Result<(), HostError> {
        self.wait_until("a controller that takes commands", |host| {
            matches!(
                host.state(),
                AssociationState::Live | AssociationState::Gone
            )
            .then_some(())
        })?;
        if self.is_live() {
            return Ok(());
        }
        Err(self
            .gone()
            .unwrap_or_else(|| self.controller.lost_for_good()))
    }

    fn wait_gone(&mut self) -> Result<(), HostError> {
        self.wait_until("the end of all connections", |host| {
            (host.state() == AssociationState::Gone).then_some(())
        })?;
        self.gone().map_or(Ok(()), Err)
    }

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

impl Host {
    /// See [`Controller::submit`].
    #[expect(
        clippy::result_large_err,
        reason = "the buffer comes back without an allocation"
    )]
    #[inline]
    pub fn submit(
        &mut self,
        command: impl Into<Command>,
        data: Data<'_>,
    ) -> Result<Ticket, Unsent> {
        self.controller.submit(command, data)
    }

    /// See [`Controller::submit_on`].
    #[expect(
        clippy::result_large_err,
        reason = "the buffer comes back without an allocation"
    )]
    #[inline]
    pub fn submit_on(
        &mut self,
        queue: IoQueue,
        command: impl Into<Command>,
        data: Data<'_>,
    ) -> Result<Ticket, Unsent> {
        self.controller.submit_on(queue, command, data)
    }

    /// See [`Controller::submit_admin`].
    #[expect(
        clippy::result_large_err,
        reason = "the buffer comes back without an allocation"
    )]
    pub fn submit_admin(&mut self, sqe: Sqe, data: Data<'_>) -> Result<Ticket, Unsent> {
        self.controller.submit_admin(sqe, data)
    }

    /// See [`Controller::take`].
    #[inline]
    pub fn take(&mut self, ticket: Ticket) -> Option<Ended> {
        self.controller.take(ticket)
    }

    /// See [`Controller::reap`].
    #[inline]
    pub fn reap(&mut self, queue: IoQueue) -> Option<(Ticket, Ended)> {
        self.controller.reap(queue)
    }

    /// See [`Controller::forget`].
    pub fn forget(&mut self, ticket: Ticket) {
        self.controller.forget(ticket);
    }

    /// See [`Controller::io_queues`].
    #[must_use]
    pub fn io_queues(&self) -> impl ExactSizeIterator<Item = IoQueue> + use<> {
        self.controller.io_queues()
    }

    /// See [`Controller::io_queue`].
    #[must_use]
    #[inline]
    pub fn io_queue(&self, turn: usize) -> IoQueue {
        self.controller.io_queue(turn)
    }

    /// See [`Controller::depth`].
    #[must_use]
    pub fn depth(&self, queue: IoQueue) -> u16 {
        self.controller.depth(queue)
    }

    /// See [`Controller::in_capsule_max`].
    #[must_use]
    #[inline]
    pub fn in_capsule_max(&self, queue: IoQueue) -> usize {
        self.controller.in_capsule_max(queue)
    }

    /// See [`Controller::prefers_capsule`].
    #[must_use]
    #[inline]
    pub fn prefers_capsule(&mut self, queue: IoQueue, bytes: usize) -> bool {
        self.controller.prefers_capsule(queue, bytes)
    }

    /// See [`Controller::state`].
    #[must_use]
    pub fn state(&self) -> AssociationState {
        self.controller.state()
    }

    /// See [`Controller::is_live`].
    #[must_use]
    #[inline]
    pub fn is_live(&self) -> bool {
        self.controller.is_live()
    }

    /// See [`Controller::take_event`].
    #[inline]
    pub fn take_event(&mut self) -> Option<Event> {
        self.controller.take_event()
    }

    /// See [`Controller::cntlid`].
    #[must_use]
    pub fn cntlid(&self) -> u16 {
        self.controller.cntlid()
    }

    /// See [`Controller::identity`].
    #[must_use]
    pub fn identity(&self) -> &IdentifyController {
        self.controller.identity()
    }

    /// See [`Controller::transfer_max`].
    #[must_use]
    pub fn transfer_max(&self) -> u32 {
        self.controller.transfer_max()
    }

    /// See [`Controller::options`].
    #[must_use]
    pub fn options(&self) -> &HostOptions {
        self.controller.options()
    }

    /// See [`Controller::device`].
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        self.controller.device()
    }

    /// See [`Controller::buffer`].
    pub fn buffer(&self, length: usize) -> Result<Buffer, HostError> {
        self.controller.buffer(length)
    }
}

impl Waiting for Host {
    fn poll_now(&mut self) -> bool {
        self.poll()
    }

    fn sleep_until(&mut self, latest: Instant) -> Result<(), HostError> {
        let wake = self
            .controller
            .next_deadline()
            .unwrap_or(latest)
            .min(latest);
        Ok(sleep_until_ready(self.controller.endpoint(), wake)?)
    }

    fn settle(&mut self) {
        let _ = self.controller.endpoint().arm();
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
