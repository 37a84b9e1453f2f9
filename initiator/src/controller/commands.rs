use nvme_proto::host::{AssociationState, Cause};
use nvme_proto::wire::Sqe;
use nvme_proto::wire::identify::IdentifyController;

use super::Controller;
use crate::buffer::Data;
use crate::command;
use crate::error::{HostError, Loss};
use crate::namespace::{Command, To};
use crate::queue::{Ended, IoQueue, Link, Outcome, Owner, Queue, Ticket, Unsent};

const TOO_SLOW: Cause = Cause::TooSlow {
    what: "the answer to a command",
};

impl Controller {
    /// Like [`submit_on`](Self::submit_on), but on the first I/O queue.
    #[expect(
        clippy::result_large_err,
        reason = "the buffer comes back without an allocation"
    )]
    pub fn submit(
        &mut self,
        command: impl Into<Command>,
        data: Data<'_>,
    ) -> Result<Ticket, Unsent> {
        self.submit_on(IoQueue::FIRST, command, data)
    }

    /// Submits a command on an I/O queue. Fills in CID, PSDT and data pointer.
    ///
    /// With [`HostOptions::requeue`](crate::HostOptions::requeue), idempotent commands wait while
    /// the controller is lost, and then until their disk is identified again. A write with unknown
    /// outcome, and other writes to the same blocks, wait as long as
    /// [`HostOptions::write_hold`](crate::HostOptions::write_hold) requires.
    ///
    /// # Errors
    /// The queue does not exist, is full or lost. The namespace is not opened or is another disk.
    /// The in-capsule data is too long.
    #[expect(
        clippy::result_large_err,
        reason = "the buffer comes back without an allocation"
    )]
    pub fn submit_on(
        &mut self,
        queue: IoQueue,
        command: impl Into<Command>,
        data: Data<'_>,
    ) -> Result<Ticket, Unsent> {
        let (qid, command) = (queue.qid(), command.into());
        if let Err(error) = self.check_disk(qid, &command) {
            return Err(unsent(error, data));
        }
        let ticket = self.submit_unchecked(qid, command.sqe, data)?;
        if matches!(command.to, To::Disk(_)) {
            self.queues[usize::from(qid)].allow_retries(ticket);
        }
        Ok(ticket)
    }

    /// Submits a Compare and a Write of one block as a fused pair ([`fused`](command::fused)).
    ///
    /// If the Compare fails, the Write ends in Command Aborted due to Failed Fused Command. A pair
    /// is never sent again: after a loss of the controller, its outcome is unknown.
    ///
    /// # Errors
    /// As [`submit_on`](Self::submit_on), or the controller does not support the pair, or the pair
    /// would wait for a lost write.
    pub fn submit_pair(
        &mut self,
        queue: IoQueue,
        [compare, write]: [(Command, Data<'_>); 2],
    ) -> Result<[Ticket; 2], HostError> {
        let qid = queue.qid();
        if self.identity().fuses.get() & IdentifyController::FUSES_COMPARE_AND_WRITE == 0 {
            let why = "the controller does not support Compare and Write";
            return Err(HostError::Unsupported(why.to_owned()));
        }
        let ((mut first, old), (mut second, new)) = (compare, write);
        [first.sqe, second.sqe] = command::fused(first.sqe, second.sqe);
        let room = self.queues.get(queue.index()).map_or(2, Queue::room);
        if room < 2 || self.guard.holds(&first.sqe) {
            return Err(HostError::QueueFull { qid });
        }
        let first = self.submit_on(queue, first, old)?;
        match self.submit_on(queue, second, new) {
            Ok(second) => Ok([first, second]),
            Err(unsent) => {
                self.forget(first);
                Err(unsent.error)
            }
        }
    }

    /// Submits a command on the admin queue. Fills in CID, PSDT and data pointer.
    #[expect(
        clippy::result_large_err,
        reason = "the buffer comes back without an allocation"
    )]
    pub fn submit_admin(&mut self, sqe: Sqe, data: Data<'_>) -> Result<Ticket, Unsent> {
        self.submit_unchecked(0, sqe, data)
    }

    /// Like [`submit_on`](Self::submit_on), but does not check the disk.
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
        let ready = self.state == AssociationState::Live && matches!(queue.link, Link::Up(_));
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

    /// Takes the result and voids the ticket, or returns `None` if the command has not ended.
    pub fn take(&mut self, ticket: Ticket) -> Option<Ended> {
        let outcome = self.queues[usize::from(ticket.qid())].take(ticket)?;
        Some(self.ended_as(ticket.qid(), outcome))
    }

    /// Takes the oldest result of an I/O queue with its ticket.
    #[inline]
    pub fn reap(&mut self, queue: IoQueue) -> Option<(Ticket, Ended)> {
        self.reap_from(queue.qid())
    }

    /// Like [`reap`](Self::reap), for the admin queue.
    pub fn reap_admin(&mut self) -> Option<(Ticket, Ended)> {
        self.reap_from(0)
    }

    pub(crate) fn reap_from(&mut self, qid: u16) -> Option<(Ticket, Ended)> {
        let (ticket, outcome) = self.queues.get_mut(usize::from(qid))?.take_oldest()?;
        Some((ticket, self.ended_as(qid, outcome)))
    }

    fn ended_as(&self, qid: u16, (answer, buffer): Outcome) -> Ended {
        let answer = answer.map_err(|loss| self.lost_by(qid, loss));
        Ended { answer, buffer }
    }

    /// True if an I/O queue cannot accept another command.
    #[must_use]
    pub fn is_full(&self, queue: IoQueue) -> bool {
        self.has_no_room(queue.qid())
    }

    pub(crate) fn has_no_room(&self, qid: u16) -> bool {
        let queue = self.queues.get(usize::from(qid));
        queue.is_some_and(Queue::is_full)
    }

    /// Abandons a command and discards its result. A waiting command is not sent. A command in
    /// flight keeps its buffer until it ends; [`give_up`](Self::give_up) can force this end.
    pub fn forget(&mut self, ticket: Ticket) {
        self.queues[usize::from(ticket.qid())].forget(ticket);
    }

    /// Ends a command that exceeded the caller's time limit.
    ///
    /// A waiting command ends in [`HostError::Lost`]. If the command is in flight, the controller
    /// counts as lost. The command then ends when its connection is closed, and is not sent again.
    pub fn give_up(&mut self, ticket: Ticket) {
        let (qid, cid, now) = (ticket.qid(), ticket.cid(), self.time());
        if self.queues[usize::from(qid)].give_up(ticket, &Loss::GivenUp(TOO_SLOW)) {
            self.association.command_timed_out(qid, cid, true, now);
            self.act();
        }
    }

    fn commands_may_wait(&self) -> bool {
        let back_soon = matches!(
            self.state,
            AssociationState::Resetting | AssociationState::Reconnecting { .. }
        );
        self.options.requeue && back_soon && !self.association.fails_fast()
    }
}

fn unsent(error: HostError, data: Data<'_>) -> Unsent {
    let buffer = data.into_buffer();
    Unsent { error, buffer }
}
