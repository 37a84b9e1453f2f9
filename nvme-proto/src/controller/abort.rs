//! Abort command (Base, 5.1). The target carries out the abort, because the command to abort may
//! run on another core.

use alloc::vec::Vec;

use crate::limits::ABORTS;
use crate::wire::Status;

use super::{Action, Completion, Controller, Outcome, Refusal};

const NOT_ABORTED: u64 = 1;

/// Pending Abort commands, at most [`ABORTS`].
#[derive(Debug, Default)]
pub struct Aborts {
    waiting: Vec<PendingAbort>,
}

#[derive(Debug)]
struct PendingAbort {
    cid: u16,
    sqid: u16,
}

impl Aborts {
    /// Records an Abort until [`Self::end`].
    ///
    /// # Errors
    /// [`ABORTS`] commands (ACL) are already pending.
    pub fn begin(&mut self, cid: u16, sqid: u16) -> Result<(), Refusal> {
        if self.waiting.len() >= ABORTS {
            return Err(Refusal::transient(Status::ABORT_COMMAND_LIMIT_EXCEEDED));
        }
        self.waiting.push(PendingAbort { cid, sqid });
        Ok(())
    }

    /// Removes pending Abort `cid` and returns its completion; `None` if unknown.
    pub fn end(&mut self, cid: u16, aborted: bool) -> Option<Completion> {
        let mine = |waiting: &PendingAbort| waiting.cid == cid;
        let index = self.waiting.iter().position(mine)?;
        self.waiting.remove(index);
        Some(completion(cid, aborted))
    }

    /// Removes the Aborts for closed queue `sqid`, and yields their completions (nothing aborted).
    pub fn end_of_queue(&mut self, sqid: u16) -> impl Iterator<Item = Completion> {
        self.waiting
            .extract_if(.., move |waiting| waiting.sqid == sqid)
            .map(|waiting| completion(waiting.cid, false))
    }

    /// Discards pending Aborts for a controller reset.
    pub fn reset(&mut self) {
        self.waiting.clear();
    }
}

impl Controller {
    /// On the admin queue, only Asynchronous Event Requests can be aborted.
    pub(super) fn abort(
        &mut self,
        abort_cid: u16,
        sqid: u16,
        cid: u16,
        actions: &mut Vec<Action>,
    ) -> Result<Outcome, Refusal> {
        if self.queues.contains(&sqid) {
            self.aborts.begin(abort_cid, sqid)?;
            actions.push(Action::Abort {
                cntlid: self.cntlid,
                abort_cid,
                sqid,
                cid,
            });
            return Ok(Outcome::Parked);
        }
        let aborted = sqid == 0 && self.events.unpark(cid);
        if aborted {
            let completion = Completion {
                cid,
                status: Status::ABORT_REQUESTED,
                result: 0,
            };
            actions.push(Action::Complete {
                cntlid: self.cntlid,
                completion,
            });
        }
        Ok(Outcome::Complete(completion(abort_cid, aborted)))
    }

    pub(crate) fn abort_done(&mut self, abort_cid: u16, aborted: bool, actions: &mut Vec<Action>) {
        if let Some(completion) = self.aborts.end(abort_cid, aborted) {
            actions.push(Action::Complete {
                cntlid: self.cntlid,
                completion,
            });
        }
    }
}

/// Completion of Abort `cid`; DW0 is 0 if `aborted`, else 1.
#[must_use]
pub fn completion(cid: u16, aborted: bool) -> Completion {
    let result = if aborted { 0 } else { NOT_ABORTED };
    Completion {
        cid,
        status: Status::SUCCESS,
        result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_ends_its_abort_once() {
        let mut aborts = Aborts::default();
        aborts.begin(1, 7).unwrap();
        aborts.begin(2, 7).unwrap();
        assert_eq!(
            aborts.end(2, true).map(|done| (done.cid, done.result)),
            Some((2, 0))
        );
        assert_eq!(aborts.end(2, true), None);
        assert_eq!(
            aborts.end(1, false).map(|done| (done.cid, done.result)),
            Some((1, 1))
        );
    }

    #[test]
    fn the_fifth_abort_is_one_too_many() {
        let mut aborts = Aborts::default();
        for cid in 0..4 {
            aborts.begin(cid, 1).unwrap();
        }
        let refusal = aborts.begin(4, 1).unwrap_err();
        assert_eq!(refusal.status, Status::ABORT_COMMAND_LIMIT_EXCEEDED);
    }
}
