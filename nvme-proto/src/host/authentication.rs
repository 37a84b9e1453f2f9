//! Authentication commands of a queue. The driver has the secrets and computes the messages.

use alloc::boxed::Box;
use core::time::Duration;

use zerocopy::little_endian::U32;

use crate::wire::fabrics::AuthenticationCommand;
use crate::wire::{FabricsType, Sqe};

use super::bring_up::Step;
use super::{Action, Association, Cause, Payload, Phase};

const SECP: u8 = 0xe9;
const SPSP: u8 = 0x01;

/// Driver's response to [`Action::Authenticate`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthenticationStep {
    /// Message for Authentication Send.
    Send(Box<[u8]>),
    /// Requests Authentication Receive with a buffer of this many bytes.
    Receive(u32),
    /// Authentication succeeded.
    Done,
    /// Reason of a failure.
    Failed(&'static str),
}

impl Association {
    /// Continues the authentication requested by [`Action::Authenticate`], unless the queue was
    /// lost.
    pub fn authenticate(&mut self, next: AuthenticationStep, now: Duration) {
        let Some(qid) = self.authenticating() else {
            return;
        };
        match next {
            AuthenticationStep::Send(message) => {
                let sqe = command(FabricsType::AUTHENTICATION_SEND, message.len() as u32);
                self.send_step(qid, sqe, Payload::FromHost(message), now);
            }
            AuthenticationStep::Receive(bytes) => {
                let sqe = command(FabricsType::AUTHENTICATION_RECEIVE, bytes);
                self.send_step(qid, sqe, Payload::ToHost(bytes), now);
            }
            AuthenticationStep::Done if self.phase == Phase::Live => self.renewed(qid, now),
            AuthenticationStep::Done => {
                self.authenticated |= qid == 0;
                self.step_ended(self.after_connect(qid), now);
            }
            AuthenticationStep::Failed(why) => self.fail(Cause::NotAuthenticated(why), now),
        }
    }

    /// True if the admin queue was authenticated.
    #[must_use]
    pub const fn is_authenticated(&self) -> bool {
        self.authenticated
    }

    /// True if a queue is being authenticated.
    #[must_use]
    pub fn is_authenticating(&self) -> bool {
        self.authenticating().is_some()
    }

    pub(super) fn authenticating(&self) -> Option<u16> {
        match self.phase {
            Phase::BringUp(Step::Authenticate(qid)) => Some(qid),
            Phase::Live => self.renewal.qid(),
            _ => None,
        }
    }

    pub(super) fn ask_for_authentication(&mut self, qid: u16, answer: Option<&[u8]>) {
        let answer = answer.map(Box::from);
        self.actions.push_back(Action::Authenticate { qid, answer });
    }
}

fn command(fctype: FabricsType, bytes: u32) -> Sqe {
    let mut command = AuthenticationCommand::from(Sqe::fabrics(0, fctype));
    command.secp = SECP;
    command.spsp0 = SPSP;
    command.spsp1 = SPSP;
    command.length = U32::new(bytes);
    command.into()
}
