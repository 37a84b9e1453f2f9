//! The commands of a controller's users, from submission to answer.

use nvme_proto::host::{Cause, State};
use nvme_proto::wire::Sqe;

use super::Controller;
use crate::buffer::Data;
use crate::error::{HostError, Loss};
use crate::namespace::{Command, To};
use crate::queue::{Link, Owner, Response, Ticket};

/// Cause of the end of commands that their owner gave up.
const TOO_SLOW: Cause = Cause::TooSlow {
    what: "the answer to a command",
};

impl Controller {
    /// Sends a command on queue `qid`: CID, PSDT and data pointer are filled in.
    ///
    /// While the controller is lost, a command that may wait for it does, if
    /// [`HostOptions::requeue`](crate::HostOptions::requeue) says so. One that is back gets a write, and writes of the
    /// same blocks, again only after [`HostOptions::write_hold`](crate::HostOptions::write_hold), and commands for a disk
    /// that was opened only when it is known to be that disk.
    ///
    /// # Errors
    /// The queue does not exist, is full or is lost, or the namespace is another disk than
    /// the command is for, or was not opened.
    ///
    /// # Panics
    /// If the data lie outside their buffer or do not fit a capsule.
    pub fn submit(
        &mut self,
        qid: u16,
        command: impl Into<Command>,
        data: Data<'_>,
    ) -> Result<Ticket, HostError> {
        let command = command.into();
        if qid != 0 {
            self.check_disk(qid, &command)?;
        }
        let ticket = self.submit_unchecked(qid, command.sqe, data)?;
        if matches!(command.to, To::Disk(_)) {
            self.queues[usize::from(qid)].allow_retries(ticket);
        }
        Ok(ticket)
    }

    /// As [`submit`](Self::submit), for callers that know that the namespace is the right disk.
    pub(crate) fn submit_unchecked(
        &mut self,
        qid: u16,
        sqe: Sqe,
        data: Data<'_>,
    ) -> Result<Ticket, HostError> {
        let waits = self.commands_may_wait();
        let queue = self
            .queues
            .get_mut(usize::from(qid))
            .ok_or(HostError::NoQueue { qid })?;
        let ready = self.state == State::Live && matches!(queue.link, Link::Up(_));
        if !ready && (!waits || queue.released) {
            return Err(self.lost(qid));
        }
        let ticket = queue.prepare(sqe, data, Owner::Caller)?;
        if ready {
            let held = qid != 0 && self.guard.holds(&sqe);
            if !held && !self.send(qid, ticket.cid()) {
                self.act();
            }
        } else if !queue.may_wait(ticket.cid()) {
            queue.forget(ticket);
            return Err(self.lost(qid));
        }
        Ok(ticket)
    }

    /// The answer to a command, once it is there. It voids the ticket. Every
    /// command gets one answer: a response, or [`HostError::Lost`] as soon as
    /// nothing can touch its buffers any more.
    ///
    /// # Panics
    /// If the ticket is void.
    pub fn take(&mut self, ticket: Ticket) -> Option<Result<Response, HostError>> {
        let answer = self.queues[usize::from(ticket.qid())].take(ticket)?;
        Some(answer.map_err(|loss| self.lost_by(ticket.qid(), loss)))
    }

    /// The oldest answer on queue `qid` that was not taken, and whose it is.
    pub fn reap(&mut self, qid: u16) -> Option<(Ticket, Result<Response, HostError>)> {
        let (ticket, answer) = self.queues.get_mut(usize::from(qid))?.take_oldest()?;
        Some((ticket, answer.map_err(|loss| self.lost_by(qid, loss))))
    }

    /// Drops the answer of a command. A command that waits is never sent. If the controller has
    /// it, it may reach for the data until it answers, and the buffer stays registered;
    /// [`give_up`](Self::give_up) ends that.
    ///
    /// # Panics
    /// If the ticket is void.
    pub fn forget(&mut self, ticket: Ticket) {
        self.queues[usize::from(ticket.qid())].forget(ticket);
    }

    /// Ends a command that takes too long for its owner. If it waits, it is taken out and ends in
    /// [`HostError::Lost`] at once. If the controller has it, the controller counts as lost, and
    /// the command ends when its connection is closed; it is not sent again.
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

    /// Whether commands may wait for a controller that takes none now.
    fn commands_may_wait(&self) -> bool {
        let back_soon = matches!(self.state, State::Resetting | State::Reconnecting { .. });
        self.options.requeue && back_soon && !self.association.fails_fast()
    }
}
