//! Identification of namespaces, and commands that wait for it.

use std::time::Duration;

use nvme_proto::host::multipath::time_in_doubt;
use nvme_proto::host::{AssociationState, requeue};
use nvme_proto::wire::Status;
use nvme_proto::wire::identify::IDENTIFY_BYTES;

use super::Controller;
use super::guard::{Changes, Found, Standing};
use crate::buffer::{Buffer, Data};
use crate::error::{HostError, Loss};
use crate::namespace::{Command, Namespace, To};
use crate::queue::{Link, Owner, Response, Ticket};

impl Controller {
    pub(crate) fn changes(&self) -> u64 {
        self.guard.changes
    }

    /// Registers an opened namespace: I/O for its NSID must reach this disk.
    ///
    /// If the NSID refers to another disk after a reconnection or reported change, commands end in
    /// [`HostError::Replaced`] until this method is called again.
    pub fn expect_disk(&mut self, namespace: &Namespace) -> Result<(), HostError> {
        if self.answers.is_none() {
            self.answers = Some(Buffer::new(&*self.device, IDENTIFY_BYTES)?);
        }
        self.guard.open(namespace);
        Ok(())
    }

    pub(crate) fn take_changes(&mut self) -> Option<Changes> {
        if self.state != AssociationState::Live {
            return Some(Changes::default());
        }
        self.guard.take_changes()
    }

    pub(super) fn check_disk(&self, qid: u16, command: &Command) -> Result<(), HostError> {
        let nsid = command.sqe.nsid.get();
        let standing = match &command.to {
            To::Disk(disk) => self.guard.standing(nsid, Some(disk)),
            #[cfg(feature = "raw")]
            To::Anything => match self.guard.standing(nsid, None) {
                Standing::Unknown => Standing::Known,
                known => known,
            },
        };
        match standing {
            Standing::Known => Ok(()),
            Standing::Replaced => Err(self.lost_by(qid, Loss::Replaced(nsid))),
            Standing::Unknown => Err(HostError::NotOpened { nsid }),
        }
    }

    /// True if the command waits although the controller is live: until its disk is identified,
    /// until no lost write can change its blocks any more, or until a retry delay ends.
    pub(crate) fn is_held(&self, ticket: Ticket) -> bool {
        self.is_live() && self.queues[usize::from(ticket.qid())].is_parked(ticket)
    }

    /// Latest time at which the target may execute commands of a connection that closes now.
    pub(super) fn in_doubt_until(&self) -> Duration {
        let by_rule = || {
            let identity = self.association.identity();
            identity.map_or(Duration::ZERO, |id| time_in_doubt(self.options.kato_ms, id))
        };
        self.time() + self.options.write_hold.unwrap_or_else(by_rule)
    }

    pub(super) fn next_parked(&self, qid: u16) -> Option<u16> {
        self.queues[usize::from(qid)].parked(self.time(), |sqe| !self.guard.holds(sqe))
    }

    pub(super) fn send_again(&mut self, qid: u16, cid: u16, status: Status) {
        let identity = self.association.identity();
        let pause = identity.map_or(Duration::ZERO, |identity| requeue::pause(status, identity));
        let moment = self.time() + pause;
        self.queues[usize::from(qid)].pause_until(cid, moment);
        self.retry_at = Some(self.retry_at.map_or(moment, |other| other.min(moment)));
    }

    fn retries_are_due(&mut self) -> bool {
        let now = self.time();
        if self.retry_at.is_none_or(|at| at > now) {
            return false;
        }
        let pauses = self.queues.iter().filter_map(|queue| queue.next_pause(now));
        self.retry_at = pauses.min();
        true
    }

    pub(super) fn keep_guard(&mut self) -> bool {
        let expired = self.guard.expire(self.time()) | self.retries_are_due();
        if self.state != AssociationState::Live {
            return expired;
        }
        if expired {
            self.send_parked();
        }
        let Some(answers) = &mut self.answers else {
            return expired;
        };
        let admin = &mut self.queues[0];
        if !matches!(admin.link, Link::Up(_)) {
            return expired;
        }
        let Some(sqe) = self.guard.next_question() else {
            return expired;
        };
        let data = Data::start_of(answers.lend(), IDENTIFY_BYTES as u32);
        let Ok(ticket) = admin.prepare(sqe, data, Owner::Guard) else {
            return expired;
        };
        self.guard.asked();
        self.send(0, ticket.cid());
        true
    }

    pub(super) fn namespace_answered(&mut self, response: &Response) {
        let answers = self.answers.as_ref();
        let answers = answers.expect("it was asked for by one that was opened");
        let mut data = [0; IDENTIFY_BYTES];
        answers.read(0, &mut data);
        match self.guard.answered(response.cqe.status(), &data) {
            Found::Nothing => {}
            Found::Same => self.send_parked(),
            Found::Replaced { nsid } => {
                let loss = Loss::Replaced(nsid);
                for queue in self.queues.iter_mut().skip(1) {
                    queue.end_parked(&loss, |sqe| sqe.nsid.get() == nsid);
                }
            }
        }
    }
}
