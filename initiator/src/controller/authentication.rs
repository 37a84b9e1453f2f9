//! Host side of DH-HMAC-CHAP over Authentication Send and Receive.

use nvme_auth::host::{Failure, Negotiating, Replied};
use nvme_auth::message::MESSAGE_BYTES_MAX;
use nvme_auth::{Names, Policy, Reason};
use nvme_proto::host::AuthenticationStep as Step;

use crate::options::HostOptions;

pub(super) const NO_SECRET: &str = "the subsystem requires it, and this host has no secret: give the one that \
                         the target has for this host (--dhchap-secret)";
const NO_RANDOM: &str = "the operating system has no random numbers";

#[derive(Debug, Default)]
pub(super) struct Dialogue {
    /// T_ID, incremented for each authentication.
    transaction: u16,
    /// SEQNUM of the last challenge. Each challenge increments SEQNUM, which skips 0.
    seqnum: u32,
    state: DialogueState,
}

#[derive(Debug, Default)]
enum DialogueState {
    #[default]
    Begun,
    NegotiateSent(Negotiating),
    ChallengeReceived(Negotiating),
    ReplySent(Replied),
    AnswerReceived(Replied),
    Succeeding,
    Failing(&'static str),
}

impl Dialogue {
    pub(super) fn begin(&mut self) {
        self.state = DialogueState::Begun;
    }

    pub(super) fn refusal(&self) -> Option<&'static str> {
        match self.state {
            DialogueState::Failing(why) => Some(why),
            _ => None,
        }
    }

    pub(super) fn moment(&self) -> &'static str {
        match self.state {
            DialogueState::Begun
            | DialogueState::NegotiateSent(_)
            | DialogueState::ChallengeReceived(_) => {
                "before the target's challenge; check that the target has a key for this host's NQN, and \
                 accepts a hash function and a Diffie-Hellman group that this host has"
            }
            DialogueState::ReplySent(_) | DialogueState::AnswerReceived(_) => {
                "after this host's response, which the target may have refused; compare --dhchap-secret \
                 with the key that the target has for this host's NQN, and --dhchap-ctrl-secret \
                 with its controller's key"
            }
            DialogueState::Succeeding | DialogueState::Failing(_) => {
                "after this host's last message; see the target's log"
            }
        }
    }

    pub(super) fn next(&mut self, options: &HostOptions, answer: &[u8]) -> Step {
        let receive = Step::Receive(MESSAGE_BYTES_MAX as u32);
        match std::mem::take(&mut self.state) {
            DialogueState::Begun => {
                let Some(secrets) = &options.authentication else {
                    return Step::Failed(NO_SECRET);
                };
                let names = Names {
                    host: options.hostnqn.raw().to_owned(),
                    subsystem: options.subnqn.raw().to_owned(),
                };
                self.transaction = self.transaction.wrapping_add(1);
                let policy = Policy::default();
                let own = Negotiating::new(names, secrets.clone(), policy, self.transaction);
                let message = own.message();
                self.state = DialogueState::NegotiateSent(own);
                Step::Send(message.into())
            }
            DialogueState::NegotiateSent(own) => {
                self.state = DialogueState::ChallengeReceived(own);
                receive
            }
            DialogueState::ChallengeReceived(own) => self.challenged(own, answer),
            DialogueState::ReplySent(own) => {
                self.state = DialogueState::AnswerReceived(own);
                receive
            }
            DialogueState::AnswerReceived(own) => match own.answered(answer) {
                Ok(success) => {
                    let Some(message) = success.message else {
                        return Step::Done;
                    };
                    self.state = DialogueState::Succeeding;
                    Step::Send(message.into())
                }
                Err(failure) => self.failed(failure),
            },
            DialogueState::Succeeding => Step::Done,
            DialogueState::Failing(why) => Step::Failed(why),
        }
    }

    fn challenged(&mut self, own: Negotiating, answer: &[u8]) -> Step {
        self.seqnum = self.seqnum.wrapping_add(1).max(1);
        let mut no_random = false;
        let replied = own.challenged(answer, self.seqnum, &mut |bytes| {
            no_random |= getrandom::fill(bytes).is_err();
        });
        match replied {
            _ if no_random => Step::Failed(NO_RANDOM),
            Ok(replied) => {
                let message = replied.message.clone();
                self.state = DialogueState::ReplySent(replied);
                Step::Send(message.into())
            }
            Err(failure) => self.failed(failure),
        }
    }

    fn failed(&mut self, failure: Failure) -> Step {
        let why = explain(failure.reason, failure.message.is_none());
        match failure.message {
            Some(message) => {
                self.state = DialogueState::Failing(why);
                Step::Send(message.into())
            }
            None => Step::Failed(why),
        }
    }
}

fn explain(reason: Reason, by_controller: bool) -> &'static str {
    match (reason, by_controller) {
        (Reason::AuthenticationFailed, true) => {
            "the target does not accept this host's response: compare --dhchap-secret with the key \
             that the target has for this host's NQN, if any; with --dhchap-ctrl-secret, the \
             target needs a controller's key, too"
        }
        (Reason::AuthenticationFailed, false) => {
            "the target did not prove that it has the controller's secret: compare \
             --dhchap-ctrl-secret with the target's controller key, and make sure that this is the \
             right target"
        }
        (Reason::HashNotUsable, _) => {
            "the ends have no hash function in common: this host has sha256, sha384 and sha512"
        }
        (Reason::GroupNotUsable, _) => {
            "the ends have no Diffie-Hellman group in common: this host has null and ffdhe2048 to \
             ffdhe8192"
        }
        (Reason::ProtocolNotUsable, _) => "the target does not have DH-HMAC-CHAP",
        (Reason::SecureChannelMismatch, _) => {
            "the target requires a secure channel, which RDMA does not have"
        }
        (Reason::IncorrectPayload | Reason::IncorrectMessage, true) => {
            "the target could not read this host's message"
        }
        (Reason::IncorrectPayload | Reason::IncorrectMessage, false) => {
            "the target's message makes no sense"
        }
    }
}
