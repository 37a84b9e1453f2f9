//! Reauthentication: the queues of a live association authenticate once more, one after the other
//! (Base, 8.13.5.6). Commands of the host's users go on meanwhile.

use core::time::Duration;

use super::{Association, Cause, Phase, Report};

/// What of it is under way, and when the next one begins.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Renewal {
    /// The queue that authenticates now.
    qid: Option<u16>,
    /// When all queues begin again.
    due: Option<Duration>,
}

impl Renewal {
    pub(super) fn qid(self) -> Option<u16> {
        self.qid
    }

    pub(super) fn due(self) -> Option<Duration> {
        self.due
    }
}

impl Association {
    /// Begins to authenticate on each queue again, on a controller that is live.
    /// [`Report::Reauthenticated`] or [`Report::NotReauthenticated`] follows, unless the controller
    /// is lost: it ends the connection of a host that cannot prove who it is. Says whether it began;
    /// one that is under way goes on instead.
    pub fn reauthenticate(&mut self) -> bool {
        if self.phase != Phase::Live || self.renewal.qid.is_some() {
            return false;
        }
        self.renewal.due = None;
        self.renewal_of(0);
        true
    }

    /// From now on, whether the controller of a subsystem must prove who it is.
    pub fn set_expects_proof(&mut self, expects_proof: bool) {
        self.settings.expects_proof = expects_proof;
    }

    /// The association has come up, by an authentication or without one.
    pub(super) fn begin_renewals(&mut self, now: Duration) {
        let interval = self.settings.reauthenticate_every;
        self.renewal = Renewal {
            qid: None,
            due: interval.filter(|_| self.authenticated).map(|t| now + t),
        };
    }

    /// It is time for the next one, perhaps.
    pub(super) fn renew(&mut self, now: Duration) {
        if self.renewal.due.is_some_and(|due| now >= due) {
            self.reauthenticate();
        }
    }

    /// A queue has authenticated again, or is gone: the next one, or the end.
    pub(super) fn renewed(&mut self, qid: u16, now: Duration) {
        let open = self.open.range(qid + 1..);
        let next = open.copied().find(|qid| !self.released.contains(qid));
        match next {
            Some(next) => self.renewal_of(next),
            None => self.end_renewal(Report::Reauthenticated, now),
        }
    }

    /// The controller does not offer it (any more): the association goes on as it is.
    pub(super) fn not_renewed(&mut self, cause: Cause, now: Duration) {
        self.end_renewal(Report::NotReauthenticated(cause), now);
    }

    /// A queue was let go of.
    pub(super) fn leave_out_of_renewal(&mut self, qid: u16, now: Duration) {
        if self.renewal.qid == Some(qid) {
            self.step_due = None;
            self.renewed(qid, now);
        }
    }

    fn renewal_of(&mut self, qid: u16) {
        self.renewal.qid = Some(qid);
        self.ask_for_authentication(qid, None);
    }

    fn end_renewal(&mut self, report: Report, now: Duration) {
        self.begin_renewals(now);
        self.report(report);
    }
}
