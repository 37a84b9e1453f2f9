//! Controller side of authentication.

use alloc::vec::Vec;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::group::Exchange;
use crate::message::{FAILURE_BYTES, Message};
use crate::response::{Asked, Role};
use crate::{Authenticated, Group, Hash, Names, Policy, Random, Reason, Secrets};

/// Controller's authentication of a queue.
#[derive(Debug)]
pub struct Authentication {
    names: Names,
    secrets: Secrets,
    policy: Policy,
    transaction: u16,
    state: ExchangeState,
}

/// Cause of a failed authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The host's response is wrong.
    #[error("the host's key is not the target's dhchap_key for this host")]
    HostSecret,
    /// The host rejected the controller's response (`AUTH_Failure2`).
    #[error(
        "the host refused the target: the controller's key of the host is not the target's \
         dhchap_ctrl_key"
    )]
    ControllerSecret,
    /// The host challenged a controller without a secret.
    #[error("the host requires a controller's key, and the target has no dhchap_ctrl_key for it")]
    NoControllerSecret,
    /// Failure for another reason.
    #[error("{0}")]
    Other(Reason),
}

impl Cause {
    /// Reason code sent to the host.
    #[must_use]
    pub fn reason(self) -> Reason {
        match self {
            Self::Other(reason) => reason,
            _ => Reason::AuthenticationFailed,
        }
    }
}

impl From<Reason> for Cause {
    fn from(reason: Reason) -> Self {
        Self::Other(reason)
    }
}

enum ExchangeState {
    Negotiating,
    Challenging(Hash, Group),
    Replying(Challenge),
    /// The host has not read the result yet. The `Option` is the response to the host's challenge.
    Succeeding(Hash, Group, Option<Zeroizing<Vec<u8>>>),
    Confirming(Authenticated),
    Failing(Cause),
    Ended(Result<Authenticated, Cause>),
}

struct Challenge {
    hash: Hash,
    group: Group,
    challenge: Vec<u8>,
    seqnum: u32,
    exchange: Option<Exchange>,
}

impl core::fmt::Debug for ExchangeState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Negotiating => "Negotiating",
            Self::Challenging(..) => "Challenging",
            Self::Replying(_) => "Replying",
            Self::Succeeding(..) => "Succeeding",
            Self::Confirming(_) => "Confirming",
            Self::Failing(_) => "Failing",
            Self::Ended(_) => "Ended",
        })
    }
}

/// Error: the buffer of an Authentication Receive is shorter than every message.
///
/// Complete the command with Invalid Field in Command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooShort;

impl Authentication {
    /// Creates the authentication of a connected queue.
    #[must_use]
    pub fn new(names: Names, secrets: Secrets, policy: Policy) -> Self {
        Self {
            names,
            secrets,
            policy,
            transaction: 0,
            state: ExchangeState::Negotiating,
        }
    }

    /// Result; `None` until the authentication ends. On failure, close the connection.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<Authenticated, Cause>> {
        match &self.state {
            ExchangeState::Ended(outcome) => Some(*outcome),
            _ => None,
        }
    }

    /// Processes the data of an Authentication Send. The command always succeeds: after an invalid
    /// message, the next Authentication Receive returns AUTH_Failure1.
    pub fn send(&mut self, data: &[u8]) {
        let (transaction, message) = Message::parse(data);
        let state = core::mem::replace(&mut self.state, ExchangeState::Negotiating);
        if matches!(state, ExchangeState::Ended(_)) {
            self.state = state;
            return;
        }
        let message = message.map_err(Cause::from);
        let next = message.and_then(|message| match (state, message) {
            (ExchangeState::Negotiating, message @ Message::Negotiate { .. }) => {
                self.transaction = transaction.unwrap_or_default();
                self.negotiate(&message).map_err(Cause::from)
            }
            _ if transaction != Some(self.transaction) => Err(Reason::IncorrectPayload.into()),
            (ExchangeState::Replying(challenge), message @ Message::Reply { .. }) => {
                self.reply(&challenge, &message)
            }
            (ExchangeState::Confirming(outcome), Message::Success2) => {
                Ok(ExchangeState::Ended(Ok(outcome)))
            }
            (ExchangeState::Confirming(_), Message::Failure2(reason)) => {
                let cause = match reason {
                    Reason::AuthenticationFailed => Cause::ControllerSecret,
                    reason => reason.into(),
                };
                Ok(ExchangeState::Ended(Err(cause)))
            }
            (ExchangeState::Failing(cause), _) => Err(cause),
            _ => Err(Reason::IncorrectMessage.into()),
        });
        self.state = next.unwrap_or_else(ExchangeState::Failing);
    }

    /// Returns the data of an Authentication Receive with a buffer of `bytes` bytes.
    ///
    /// `seqnum` must be nonzero and differ for each challenge.
    pub fn receive(
        &mut self,
        bytes: usize,
        seqnum: u32,
        random: Random<'_>,
    ) -> Result<Vec<u8>, TooShort> {
        if bytes < FAILURE_BYTES {
            return Err(TooShort);
        }
        let state = core::mem::replace(&mut self.state, ExchangeState::Negotiating);
        let (message, next) = match state {
            ExchangeState::Challenging(hash, group) => {
                let challenge = Challenge::new(hash, group, seqnum, random);
                let message = challenge.message(self.transaction);
                (message, ExchangeState::Replying(challenge))
            }
            ExchangeState::Succeeding(hash, group, response) => {
                let message = Message::Success1 {
                    // Linux requires a nonzero HL even without response.
                    hash_len: hash.bytes() as u8,
                    response: response.as_ref().map(|bytes| &bytes[..]),
                };
                let outcome = Authenticated {
                    hash,
                    group,
                    mutual: response.is_some(),
                };
                let next = match response {
                    Some(_) => ExchangeState::Confirming(outcome),
                    None => ExchangeState::Ended(Ok(outcome)),
                };
                (message.encode(self.transaction), next)
            }
            ExchangeState::Failing(cause) | ExchangeState::Ended(Err(cause)) => self.failure(cause),
            _ => self.failure(Reason::IncorrectMessage.into()),
        };
        let (message, next) = if message.len() > bytes {
            self.failure(Reason::IncorrectPayload.into())
        } else {
            (message, next)
        };
        self.state = next;
        Ok(message)
    }

    fn failure(&self, cause: Cause) -> (Vec<u8>, ExchangeState) {
        let message = Message::Failure1(cause.reason()).encode(self.transaction);
        (message, ExchangeState::Ended(Err(cause)))
    }

    fn negotiate(&self, message: &Message<'_>) -> Result<ExchangeState, Reason> {
        let Message::Negotiate {
            without_channel,
            has_protocol,
            hashes,
            groups,
        } = message
        else {
            return Err(Reason::IncorrectMessage);
        };
        if !*without_channel {
            return Err(Reason::SecureChannelMismatch);
        }
        if !*has_protocol {
            return Err(Reason::ProtocolNotUsable);
        }
        let hash = self.policy.hashes.iter().find(|hash| hashes.contains(hash));
        let hash = *hash.ok_or(Reason::HashNotUsable)?;
        let group = self
            .policy
            .groups
            .iter()
            .find(|group| groups.contains(group));
        let group = *group.ok_or(Reason::GroupNotUsable)?;
        Ok(ExchangeState::Challenging(hash, group))
    }

    fn reply(&self, asked: &Challenge, message: &Message<'_>) -> Result<ExchangeState, Cause> {
        let Message::Reply {
            response,
            challenge,
            seqnum,
            public_key,
        } = *message
        else {
            return Err(Reason::IncorrectMessage.into());
        };
        let (hash, group) = (asked.hash, asked.group);
        if response.len() != hash.bytes() {
            return Err(Reason::IncorrectPayload.into());
        }
        let common = match &asked.exchange {
            None if public_key.is_empty() => None,
            None => return Err(Reason::IncorrectPayload.into()),
            Some(exchange) => Some(
                exchange
                    .common(public_key)
                    .ok_or(Reason::IncorrectPayload)?,
            ),
        };
        let common = common.as_ref().map(|bytes| &bytes[..]);
        let expected = Asked {
            hash,
            role: Role::Host,
            challenge: &asked.challenge,
            common,
            seqnum: asked.seqnum,
            transaction: self.transaction,
            own: &self.names.host,
            other: &self.names.subsystem,
        };
        let expected = expected.response(&self.secrets.host);
        if !bool::from(expected.ct_eq(response)) {
            return Err(Cause::HostSecret);
        }
        let Some(challenge) = challenge else {
            return Ok(ExchangeState::Succeeding(hash, group, None));
        };
        let secret = self.secrets.controller.as_ref();
        let secret = secret.ok_or(Cause::NoControllerSecret)?;
        let own = Asked {
            hash,
            role: Role::Controller,
            challenge,
            common,
            seqnum,
            transaction: self.transaction,
            own: &self.names.subsystem,
            other: &self.names.host,
        };
        let response = own.response(secret);
        Ok(ExchangeState::Succeeding(hash, group, Some(response)))
    }
}

impl Challenge {
    fn new(hash: Hash, group: Group, seqnum: u32, random: Random<'_>) -> Self {
        let mut challenge = alloc::vec![0; hash.bytes()];
        random(&mut challenge);
        Self {
            hash,
            group,
            challenge,
            seqnum,
            exchange: Exchange::new(group, random),
        }
    }

    fn message(&self, transaction: u16) -> Vec<u8> {
        let public_key = self.exchange.as_ref().map(Exchange::public_key);
        let message = Message::Challenge {
            hash: self.hash as u8,
            group: self.group as u8,
            seqnum: self.seqnum,
            challenge: &self.challenge,
            public_key: public_key.as_deref().unwrap_or_default(),
        };
        message.encode(transaction)
    }
}
