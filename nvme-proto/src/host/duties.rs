//! Background commands of a host: Keep Alive, Asynchronous Event Request, and Abort.

use core::time::Duration;

use crate::wire::aen::AsyncEvent;
use crate::wire::identify::Ctratt;
use crate::wire::{AdminOpcode, Cqe, Sqe};

use super::bring_up::command;
use super::{Action, Association, Cause, Duty, Notice, OwnCommand, Payload, Phase, Report};

/// Maximum Aborts in flight, even if ACL allows more.
pub(super) const ABORTS_MAX: u8 = 4;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeepAlive {
    kato: Option<Duration>,
    interval: Duration,
    /// True if any command restarts the controller's timer (CTRATT.TBKAS).
    traffic_based: bool,
    /// True if a user command completed since the last Keep Alive check.
    traffic: bool,
    due: Duration,
    sent: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Aborts {
    outstanding: u8,
}

impl KeepAlive {
    pub(super) fn deadline(&self) -> Option<Duration> {
        let kato = self.kato?;
        Some(self.sent.map_or(self.due, |sent| sent + kato))
    }
}

impl Aborts {
    pub(super) fn answered(&mut self) {
        self.outstanding = self.outstanding.saturating_sub(1);
    }
}

impl Association {
    pub(super) fn begin_duties(&mut self, now: Duration) {
        let kato = Duration::from_millis(self.settings.kato_ms.into());
        let traffic_based = self
            .identity
            .as_ref()
            .is_some_and(|id| Ctratt(id.ctratt.get()).tbkas());
        // With traffic-based keep alive, nearly two intervals may pass without a command, because
        // an interval with traffic needs no Keep Alive.
        let interval = kato / if traffic_based { 4 } else { 2 };
        self.keep_alive = KeepAlive {
            kato: (!kato.is_zero()).then_some(kato),
            interval,
            traffic_based,
            traffic: false,
            due: now + interval,
            sent: None,
        };
        if self.enabled_events().0 != 0 {
            self.request_event();
        }
    }

    /// Records a completed user command, for traffic-based keep alive.
    pub fn note_traffic(&mut self) {
        self.keep_alive.traffic = true;
    }

    /// Handles a user command on `qid` that exceeded its timeout.
    ///
    /// Returns true if an Abort was sent; false if ACL allows no more now, or the association is
    /// not live. If `last` is true (an earlier Abort had no effect), the association fails
    /// without an Abort.
    pub fn command_timed_out(&mut self, qid: u16, cid: u16, last: bool, now: Duration) -> bool {
        if self.phase != Phase::Live {
            return false;
        }
        if last {
            self.fail(Cause::CommandTimeout { qid, cid }, now);
            return false;
        }
        let acl = self.identity.as_ref().map_or(0, |id| id.acl);
        if self.aborts.outstanding >= acl.saturating_add(1).min(ABORTS_MAX) {
            return false;
        }
        self.aborts.outstanding += 1;
        let mut sqe = command(AdminOpcode::ABORT);
        sqe.cdw10.set(u32::from(qid) | u32::from(cid) << 16);
        self.send_duty(Duty::Abort, sqe);
        true
    }

    pub(super) fn stay_alive(&mut self, now: Duration) {
        let Some(kato) = self.keep_alive.kato else {
            return;
        };
        if let Some(sent) = self.keep_alive.sent {
            if now >= sent + kato {
                let what = "the answer to a Keep Alive";
                self.fail(Cause::TooSlow { what }, now);
            }
            return;
        }
        if now < self.keep_alive.due {
            return;
        }
        self.keep_alive.due = now + self.keep_alive.interval;
        let traffic = core::mem::take(&mut self.keep_alive.traffic);
        if !(traffic && self.keep_alive.traffic_based) {
            self.keep_alive.sent = Some(now);
            self.send_duty(Duty::KeepAlive, command(AdminOpcode::KEEP_ALIVE));
        }
    }

    pub(super) fn kept_alive(&mut self, cqe: &Cqe, now: Duration) {
        if self.phase != Phase::Live || self.keep_alive.sent.take().is_none() {
            return;
        }
        let status = cqe.status();
        if !status.is_success() {
            let cause = Cause::Status {
                command: "Keep Alive",
                status,
                result: cqe.result(),
            };
            self.fail(cause, now);
        }
    }

    pub(super) fn event_came(&mut self, cqe: &Cqe) {
        if self.phase == Phase::Live && cqe.status().is_success() {
            let event = AsyncEvent(cqe.dw0.get());
            self.report(Report::Notice(Notice::from(event)));
            self.request_event();
        }
    }

    fn request_event(&mut self) {
        self.send_duty(
            Duty::EventRequest,
            command(AdminOpcode::ASYNC_EVENT_REQUEST),
        );
    }

    fn send_duty(&mut self, duty: Duty, sqe: Sqe) {
        self.actions.push_back(Action::Send(OwnCommand {
            qid: 0,
            duty,
            sqe,
            payload: Payload::None,
        }));
    }
}
