//! The authentication of a queue: the association sends its commands, its driver, which has the
//! secrets, says what is in them.

use alloc::boxed::Box;
use core::time::Duration;

use zerocopy::little_endian::U32;

use crate::wire::fabrics::AuthenticationCommand;
use crate::wire::{FabricsType, Sqe};

use super::bring_up::Step;
use super::{Action, Association, Cause, Payload, Phase};

/// SECP, SPSP0 and SPSP1 of both commands (Base, 6.1 and 6.2).
const SECP: u8 = 0xe9;
const SPSP: u8 = 0x01;

/// What the driver says is next, after [`Action::Authenticate`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthenticationStep {
    /// Authentication Send of this message.
    Send(Box<[u8]>),
    /// Authentication Receive with a buffer of so many bytes.
    Receive(u32),
    /// Nothing: both ends are content.
    Done,
    /// Nothing: an end is not, for this reason.
    Failed(&'static str),
}

impl Association {
    /// Goes on with the authentication that an [`Action::Authenticate`] was about. If that queue
    /// was lost meanwhile, nothing happens.
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

    /// Whether the authentication of a queue is under way, its first one or another.
    #[must_use]
    pub fn is_authenticating(&self) -> bool {
        self.authenticating().is_some()
    }

    /// Which one.
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
