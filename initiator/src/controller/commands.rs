//! Commands of the controller's users, from submission to response.

use nvme_proto::host::{Cause, State};
use nvme_proto::wire::Sqe;

use super::Controller;
use crate::buffer::Data;
use crate::error::{HostError, Loss};
use crate::namespace::{Command, To};
use crate::queue::{Ended, Link, Outcome, Owner, Queue, Ticket, Unsent};

/// Cause of the loss of a controller whose command took too long for its owner.
const TOO_SLOW: Cause = Cause::TooSlow {
    what: "the answer to a command",
};

impl Controller {
    /// Submits a command on queue `qid`; fills in CID, PSDT and data pointer.
    ///
    /// The command owns its buffer until it has ended ([`take`](Self::take),
    /// [`reap`](Self::reap)).
    ///
    /// If [`HostOptions::requeue`](crate::HostOptions::requeue) allows it, commands wait while the
    /// controller is lost. After it is back, a lost write and writes of its blocks wait for
    /// [`HostOptions::write_hold`](crate::HostOptions::write_hold). Commands for an opened disk
    /// wait until the disk is identified again.
    ///
    /// # Errors
    /// The queue does not exist, is full or is lost; the namespace was not opened, or is not the disk
    /// that the command addresses; or the data do not fit in a capsule.
    #[expect(
        clippy::result_large_err,
        reason = "the buffer comes back without an allocation"
    )]
    pub fn submit(
        &mut self,
        qid: u16,
        command: impl Into<Command>,
        data: Data<'_>,
    ) -> Result<Ticket, Unsent> {
        let command = command.into();
        if qid != 0
            && let Err(error) = self.check_disk(qid, &command)
        {
            return Err(unsent(error, data));
        }
        let ticket = self.submit_unchecked(qid, command.sqe, data)?;
        if matches!(command.to, To::Disk(_)) {
            self.queues[usize::from(qid)].allow_retries(ticket);
        }
        Ok(ticket)
    }

    /// Submits a command like [`submit`](Self::submit), for callers that have checked the disk.
    #[expect(
        clippy::result_large_err,
        reason = "the buffer comes back without an allocation"
    )]
    pub(crate) fn submit_unchecked(
        &mut self,
        qid: u16,
        sqe: Sqe,
        data: Data<'_>,
    ) -> Result<Ticket, Unsent> {
        let waits = self.commands_may_wait();
        let Some(queue) = self.queues.get_mut(usize::from(qid)) else {
            return Err(unsent(HostError::NoQueue { qid }, data));
        };
        let ready = self.state == State::Live && matches!(queue.link, Link::Up(_));
        if !ready && (!waits || queue.released) {
            return Err(unsent(self.lost(qid), data));
        }
        let ticket = queue.prepare(sqe, data, Owner::Caller)?;
        if ready {
            let held = qid != 0 && self.guard.holds(&sqe);
            if !held && !self.send(qid, ticket.cid()) {
                self.act();
            }
        } else if !queue.may_wait(ticket.cid()) {
            let buffer = queue.withdraw(ticket);
            let error = self.lost(qid);
            return Err(Unsent { error, buffer });
        }
        Ok(ticket)
    }

    /// Removes and returns the result of a command, if it has ended, and voids the ticket.
    ///
    /// Every command ends once: with a response, or with [`HostError::Lost`] when nothing can
    /// access its buffer any more.
    ///
    /// # Panics
    /// If the ticket is void.
    pub fn take(&mut self, ticket: Ticket) -> Option<Ended> {
        let outcome = self.queues[usize::from(ticket.qid())].take(ticket)?;
        Some(self.ended_as(ticket.qid(), outcome))
    }

    /// Removes and returns the oldest result of a command on queue `qid`, with its ticket.
    pub fn reap(&mut self, qid: u16) -> Option<(Ticket, Ended)> {
        let (ticket, outcome) = self.queues.get_mut(usize::from(qid))?.take_oldest()?;
        Some((ticket, self.ended_as(qid, outcome)))
    }

    fn ended_as(&self, qid: u16, (answer, buffer): Outcome) -> Ended {
        let answer = answer.map_err(|loss| self.lost_by(qid, loss));
        Ended { answer, buffer }
    }

    /// True if queue `qid` holds as many commands as it can.
    #[must_use]
    pub fn is_full(&self, qid: u16) -> bool {
        let queue = self.queues.get(usize::from(qid));
        queue.is_some_and(Queue::is_full)
    }

    /// Discards the result of a command. A waiting command is never sent.
    ///
    /// If the controller has the command, it may access the data until it responds, and the command
    /// keeps its buffer; [`give_up`](Self::give_up) ends that.
    ///
    /// # Panics
    /// If the ticket is void.
    pub fn forget(&mut self, ticket: Ticket) {
        self.queues[usize::from(ticket.qid())].forget(ticket);
    }

    /// Ends a command that takes too long for its owner.
    ///
    /// A waiting command is removed and ends in [`HostError::Lost`] at once. If the controller has
    /// the command, the controller counts as lost; the command ends when its connection is closed
    /// and is not sent again.
    ///
    /// # Panics
    /// If the ticket is void.
    pub fn give_up(&mut self, ticket: Ticket) {
        let (qid, cid, now) = (ticket.qid(), ticket.cid(), self.time());
        if self.queues[usize::from(qid)].give_up(ticket, &Loss::GivenUp(TOO_SLOW)) {
            self.association.command_timed_out(qid, cid, true, now);
            self.act();
        }
    }

    /// True if commands may wait for a controller that currently accepts none.
    fn commands_may_wait(&self) -> bool {
        let back_soon = matches!(self.state, State::Resetting | State::Reconnecting { .. });
        self.options.requeue && back_soon && !self.association.fails_fast()
    }
}

/// Returns the buffer of a command that was not submitted, with the reason.
fn unsent(error: HostError, data: Data<'_>) -> Unsent {
    let buffer = data.into_buffer();
    Unsent { error, buffer }
}
