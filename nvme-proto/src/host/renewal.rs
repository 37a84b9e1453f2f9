//! Reauthentication of a live association, queue by queue, while user commands continue (Base,
//! 8.13.5.6).

use core::time::Duration;

use super::{Association, Cause, Phase, Report};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Renewal {
    qid: Option<u16>,
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
    /// Starts to authenticate every queue again; [`Report::Reauthenticated`] or
    /// [`Report::NotReauthenticated`] follows. If host or controller fails to authenticate, the
    /// association is lost.
    ///
    /// Returns false if the controller is not live, or a reauthentication is in progress.
    pub fn reauthenticate(&mut self) -> bool {
        if self.phase != Phase::Live || self.renewal.qid.is_some() {
            return false;
        }
        self.renewal.due = None;
        self.renewal_of(0);
        true
    }

    /// Sets whether the controller must authenticate from the next connection on.
    pub fn set_expects_proof(&mut self, expects_proof: bool) {
        self.settings.expects_proof = expects_proof;
    }

    pub(super) fn begin_renewals(&mut self, now: Duration) {
        let interval = self.settings.reauthenticate_every;
        self.renewal = Renewal {
            qid: None,
            due: interval.filter(|_| self.authenticated).map(|t| now + t),
        };
    }

    pub(super) fn renew(&mut self, now: Duration) {
        if self.renewal.due.is_some_and(|due| now >= due) {
            self.reauthenticate();
        }
    }

    pub(super) fn renewed(&mut self, qid: u16, now: Duration) {
        let open = self.open.range(qid + 1..);
        let next = open.copied().find(|qid| !self.released.contains(qid));
        match next {
            Some(next) => self.renewal_of(next),
            None => self.end_renewal(Report::Reauthenticated, now),
        }
    }

    pub(super) fn not_renewed(&mut self, cause: Cause, now: Duration) {
        self.end_renewal(Report::NotReauthenticated(cause), now);
    }

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
