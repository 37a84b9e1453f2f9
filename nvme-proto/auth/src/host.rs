//! Host side of authentication. The caller takes these steps:
//!
//! 1. Authentication Send of [`Negotiating::message`];
//! 2. Authentication Receive, and [`Negotiating::challenged`] with its data;
//! 3. Authentication Send of [`Replied::message`];
//! 4. Authentication Receive, and [`Replied::answered`] with its data;
//! 5. Authentication Send of [`Success::message`], if any.
//!
//! An Authentication Receive has a buffer of
//! [`MESSAGE_BYTES_MAX`](crate::message::MESSAGE_BYTES_MAX) bytes.

use alloc::vec::Vec;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::group::Exchange;
use crate::message::Message;
use crate::response::{Asked, Role};
use crate::{Authenticated, Group, Hash, Names, Policy, Random, Reason, Secrets};

/// Failed authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Reason code, received from the controller or sent in `message`.
    pub reason: Reason,
    /// AUTH_Failure2 to send before disconnecting; `None` if the controller reported the failure.
    pub message: Option<Vec<u8>>,
}

/// Authentication that waits for the controller's challenge.
#[derive(Debug)]
pub struct Negotiating {
    names: Names,
    secrets: Secrets,
    policy: Policy,
    transaction: u16,
}

/// Authentication that waits for the controller's result.
pub struct Replied {
    /// DH-HMAC-CHAP_Reply to send.
    pub message: Vec<u8>,
    hash: Hash,
    group: Group,
    transaction: u16,
    expected: Option<Zeroizing<Vec<u8>>>,
}

impl core::fmt::Debug for Replied {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Replied({}, {})", self.hash, self.group)
    }
}

/// Successful authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Success {
    /// DH-HMAC-CHAP_Success2 to send, if the controller authenticated too.
    pub message: Option<Vec<u8>>,
    /// Negotiated parameters.
    pub outcome: Authenticated,
}

impl Negotiating {
    /// Starts an authentication.
    ///
    /// `transaction` (T_ID) must be unique in the association. With [`Secrets::controller`], the
    /// controller must authenticate too.
    #[must_use]
    pub fn new(names: Names, secrets: Secrets, policy: Policy, transaction: u16) -> Self {
        Self {
            names,
            secrets,
            policy,
            transaction,
        }
    }

    /// AUTH_Negotiate to send.
    #[must_use]
    pub fn message(&self) -> Vec<u8> {
        Message::negotiate(&self.policy).encode(self.transaction)
    }

    /// Processes the controller's challenge. `seqnum` must be nonzero and differ for each challenge
    /// of this host.
    ///
    /// # Errors
    /// The controller reported a failure, sent an invalid message, or selected a hash or group
    /// outside the policy.
    pub fn challenged(
        self,
        data: &[u8],
        seqnum: u32,
        random: Random<'_>,
    ) -> Result<Replied, Failure> {
        let challenge = received(data, self.transaction)?;
        let fail = |reason| failure(reason, self.transaction);
        let Message::Challenge {
            hash,
            group,
            seqnum: asked,
            challenge,
            public_key,
        } = challenge
        else {
            return Err(fail(Reason::IncorrectMessage));
        };
        let hash = Hash::of(hash).filter(|hash| self.policy.hashes.contains(hash));
        let hash = hash.filter(|hash| hash.bytes() == challenge.len());
        let hash = hash.ok_or_else(|| fail(Reason::HashNotUsable))?;
        let group = Group::of(group).filter(|group| self.policy.groups.contains(group));
        let group = group.ok_or_else(|| fail(Reason::GroupNotUsable))?;
        let exchange = Exchange::new(group, random);
        let common = match &exchange {
            None if public_key.is_empty() => None,
            None => return Err(fail(Reason::IncorrectPayload)),
            Some(exchange) => {
                let common = exchange.common(public_key);
                Some(common.ok_or_else(|| fail(Reason::IncorrectPayload))?)
            }
        };
        let common = common.as_ref().map(|bytes| &bytes[..]);
        let own = Asked {
            hash,
            role: Role::Host,
            challenge,
            common,
            seqnum: asked,
            transaction: self.transaction,
            own: &self.names.host,
            other: &self.names.subsystem,
        };
        let response = own.response(&self.secrets.host);
        let mut question = Vec::new();
        let expected = self.secrets.controller.as_ref().map(|secret| {
            question.resize(hash.bytes(), 0);
            random(&mut question);
            let theirs = Asked {
                role: Role::Controller,
                challenge: &question,
                seqnum,
                own: &self.names.subsystem,
                other: &self.names.host,
                ..own
            };
            theirs.response(secret)
        });
        let own_key = exchange.as_ref().map(Exchange::public_key);
        let message = Message::Reply {
            response: &response,
            challenge: expected.is_some().then_some(&question[..]),
            seqnum: if expected.is_some() { seqnum } else { 0 },
            public_key: own_key.as_deref().unwrap_or_default(),
        };
        Ok(Replied {
            message: message.encode(self.transaction),
            hash,
            group,
            transaction: self.transaction,
            expected,
        })
    }
}

impl Replied {
    /// Processes the controller's result (DH-HMAC-CHAP_Success1).
    ///
    /// # Errors
    /// The controller reported a failure, sent an invalid message, or did not prove its identity as
    /// [`Secrets::controller`] requires.
    pub fn answered(self, data: &[u8]) -> Result<Success, Failure> {
        let message = received(data, self.transaction)?;
        let Message::Success1 { response, .. } = message else {
            return Err(failure(Reason::IncorrectMessage, self.transaction));
        };
        let is_right = match (&self.expected, response) {
            (None, _) => true,
            (Some(expected), Some(response)) => expected.ct_eq(response).into(),
            (Some(_), None) => false,
        };
        if !is_right {
            return Err(failure(Reason::AuthenticationFailed, self.transaction));
        }
        let mutual = self.expected.is_some();
        Ok(Success {
            message: mutual.then(|| Message::Success2.encode(self.transaction)),
            outcome: Authenticated {
                hash: self.hash,
                group: self.group,
                mutual,
            },
        })
    }
}

fn received(data: &[u8], transaction: u16) -> Result<Message<'_>, Failure> {
    match Message::parse(data) {
        (_, Ok(Message::Failure1(reason))) => Err(Failure {
            reason,
            message: None,
        }),
        (Some(id), Ok(message)) if id == transaction => Ok(message),
        (_, Ok(_)) => Err(failure(Reason::IncorrectMessage, transaction)),
        (_, Err(reason)) => Err(failure(reason, transaction)),
    }
}

fn failure(reason: Reason, transaction: u16) -> Failure {
    Failure {
        reason,
        message: Some(Message::Failure2(reason).encode(transaction)),
    }
}
