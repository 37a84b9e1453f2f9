//! DH-HMAC-CHAP messages (Base 2.0, sections 8.13.5.3 and 8.13.5.4).

use core::fmt;

use alloc::vec::Vec;

use crate::{Group, Hash, Policy};

/// SECP of authentication commands.
pub const SECP: u8 = 0xe9;
/// SPSP0 and SPSP1 of authentication commands.
pub const SPSP: u8 = 1;

const COMMON: u8 = 0;
const DH_HMAC_CHAP: u8 = 1;
const PROTOCOL: u8 = 1;

const NEGOTIATE: u8 = 0x00;
const CHALLENGE: u8 = 0x01;
const REPLY: u8 = 0x02;
const SUCCESS1: u8 = 0x03;
const SUCCESS2: u8 = 0x04;
const FAILURE2: u8 = 0xf0;
const FAILURE1: u8 = 0xf1;

/// Length of a protocol descriptor in AUTH_Negotiate.
const DESCRIPTOR: usize = 64;
/// Offset of the hash functions in a protocol descriptor.
const LISTS: usize = 4;
/// Offset of the groups from `LISTS`.
const GROUPS: usize = 30;
/// Bytes before the variable part of Challenge, Reply and Success1.
const FIXED: usize = 16;
pub(crate) const FAILURE_BYTES: usize = 8;
/// Bytes in the longest message (DH-HMAC-CHAP_Reply).
pub const MESSAGE_BYTES_MAX: usize = FIXED + 2 * 64 + 1024;

/// Reason code of a failure (figure 450).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// A response is wrong, or no secret is configured.
    AuthenticationFailed = 1,
    /// No protocol in common.
    ProtocolNotUsable = 2,
    /// One side requires a secure channel that its peer does not offer.
    SecureChannelMismatch = 3,
    /// No hash function in common.
    HashNotUsable = 4,
    /// No Diffie-Hellman group in common.
    GroupNotUsable = 5,
    /// A field of a message is invalid.
    IncorrectPayload = 6,
    /// A message is out of sequence.
    IncorrectMessage = 7,
}

impl Reason {
    fn of(code: u8) -> Self {
        match code {
            2 => Self::ProtocolNotUsable,
            3 => Self::SecureChannelMismatch,
            4 => Self::HashNotUsable,
            5 => Self::GroupNotUsable,
            6 => Self::IncorrectPayload,
            7 => Self::IncorrectMessage,
            _ => Self::AuthenticationFailed,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AuthenticationFailed => "the other end reports a wrong secret",
            Self::ProtocolNotUsable => "no authentication protocol in common",
            Self::SecureChannelMismatch => "a secure channel was asked for, which RDMA has not",
            Self::HashNotUsable => "no hash function in common",
            Self::GroupNotUsable => "no Diffie-Hellman group in common",
            Self::IncorrectPayload => "a field of a message is wrong",
            Self::IncorrectMessage => "a message came that is not the next one",
        })
    }
}

/// Message of either side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message<'a> {
    /// AUTH_Negotiate, without unknown hash functions and groups.
    Negotiate {
        /// True if SC_C is 0 (no secure channel).
        without_channel: bool,
        /// True if DH-HMAC-CHAP is offered.
        has_protocol: bool,
        /// Offered hash functions.
        hashes: Vec<Hash>,
        /// Offered Diffie-Hellman groups.
        groups: Vec<Group>,
    },
    /// DH-HMAC-CHAP_Challenge.
    Challenge {
        /// HASHID, not validated.
        hash: u8,
        /// DHGID, not validated.
        group: u8,
        /// SEQNUM of the challenge.
        seqnum: u32,
        /// CVAL: challenge.
        challenge: &'a [u8],
        /// DHVAL: public key, empty for the null group.
        public_key: &'a [u8],
    },
    /// DH-HMAC-CHAP_Reply.
    Reply {
        /// RVAL: response.
        response: &'a [u8],
        /// CVAL: challenge of the host; `None` if CVALID is 0.
        challenge: Option<&'a [u8]>,
        /// SEQNUM of the host's challenge.
        seqnum: u32,
        /// DHVAL: public key, empty for the null group.
        public_key: &'a [u8],
    },
    /// DH-HMAC-CHAP_Success1.
    Success1 {
        /// HL: length of the hash in bytes.
        hash_len: u8,
        /// RVAL: response of the controller; `None` if RVALID is 0.
        response: Option<&'a [u8]>,
    },
    /// DH-HMAC-CHAP_Success2.
    Success2,
    /// AUTH_Failure1, sent by the controller.
    Failure1(Reason),
    /// AUTH_Failure2, sent by the host.
    Failure2(Reason),
}

impl<'a> Message<'a> {
    /// Parses a message and the transaction (T_ID), if present.
    ///
    /// Ignores bytes after the message: Authentication Receive returns its whole buffer.
    pub fn parse(bytes: &'a [u8]) -> (Option<u16>, Result<Self, Reason>) {
        let transaction = bytes.get(4..6).and_then(|bytes| bytes.try_into().ok());
        let transaction = transaction.map(u16::from_le_bytes);
        let message = match bytes {
            [COMMON, NEGOTIATE, ..] => parse_negotiate(bytes),
            [COMMON, FAILURE1, ..] => parse_failure(bytes).map(Self::Failure1),
            [COMMON, FAILURE2, ..] => parse_failure(bytes).map(Self::Failure2),
            [DH_HMAC_CHAP, CHALLENGE, ..] => parse_challenge(bytes),
            [DH_HMAC_CHAP, REPLY, ..] => parse_reply(bytes),
            [DH_HMAC_CHAP, SUCCESS1, ..] => parse_success(bytes),
            [DH_HMAC_CHAP, SUCCESS2, ..] if bytes.len() >= FIXED => Some(Self::Success2),
            [DH_HMAC_CHAP, SUCCESS2, ..] | [] | [_] => None,
            _ => return (transaction, Err(Reason::IncorrectMessage)),
        };
        (transaction, message.ok_or(Reason::IncorrectPayload))
    }

    /// Encodes the message with this T_ID.
    #[must_use]
    pub fn encode(&self, transaction: u16) -> Vec<u8> {
        let (kind, id) = match self {
            Self::Negotiate { .. } => (COMMON, NEGOTIATE),
            Self::Challenge { .. } => (DH_HMAC_CHAP, CHALLENGE),
            Self::Reply { .. } => (DH_HMAC_CHAP, REPLY),
            Self::Success1 { .. } => (DH_HMAC_CHAP, SUCCESS1),
            Self::Success2 => (DH_HMAC_CHAP, SUCCESS2),
            Self::Failure1(_) => (COMMON, FAILURE1),
            Self::Failure2(_) => (COMMON, FAILURE2),
        };
        let mut bytes = alloc::vec![kind, id, 0, 0];
        bytes.extend(transaction.to_le_bytes());
        match self {
            Self::Negotiate { hashes, groups, .. } => encode_lists(&mut bytes, hashes, groups),
            Self::Challenge {
                hash,
                group,
                seqnum,
                challenge,
                public_key,
            } => {
                bytes.extend([challenge.len() as u8, 0, *hash, *group]);
                bytes.extend((public_key.len() as u16).to_le_bytes());
                bytes.extend(seqnum.to_le_bytes());
                bytes.extend([*challenge, *public_key].concat());
            }
            Self::Reply {
                response,
                challenge,
                seqnum,
                public_key,
            } => {
                bytes.extend([response.len() as u8, 0, challenge.is_some().into(), 0]);
                bytes.extend((public_key.len() as u16).to_le_bytes());
                bytes.extend(seqnum.to_le_bytes());
                bytes.extend_from_slice(response);
                let at = bytes.len();
                bytes.extend_from_slice(challenge.unwrap_or_default());
                bytes.resize(at + response.len(), 0);
                bytes.extend_from_slice(public_key);
            }
            Self::Success1 { hash_len, response } => {
                bytes.extend([*hash_len, 0, response.is_some().into()]);
                bytes.resize(FIXED, 0);
                bytes.extend_from_slice(response.unwrap_or_default());
            }
            Self::Success2 => bytes.resize(FIXED, 0),
            Self::Failure1(reason) | Self::Failure2(reason) => {
                // RC 1: authentication failure. RCE: reason.
                bytes.extend([1, *reason as u8]);
            }
        }
        bytes
    }

    pub(crate) fn negotiate(policy: &Policy) -> Self {
        Self::Negotiate {
            without_channel: true,
            has_protocol: true,
            hashes: policy.hashes.clone(),
            groups: policy.groups.clone(),
        }
    }
}

fn encode_lists(bytes: &mut Vec<u8>, hashes: &[Hash], groups: &[Group]) {
    let at = bytes.len() + 2;
    bytes.extend([0, 1]);
    bytes.extend([PROTOCOL, 0, hashes.len() as u8, groups.len() as u8]);
    bytes.extend(hashes.iter().map(|hash| *hash as u8));
    bytes.resize(at + LISTS + GROUPS, 0);
    bytes.extend(groups.iter().map(|group| *group as u8));
    bytes.resize(at + DESCRIPTOR, 0);
}

fn parse_negotiate(bytes: &[u8]) -> Option<Message<'_>> {
    let [channel, count] = *bytes.get(6..8)? else {
        return None;
    };
    let descriptors = bytes.get(8..8 + usize::from(count) * DESCRIPTOR)?;
    let mut descriptors = descriptors.chunks_exact(DESCRIPTOR);
    let ours = descriptors.find(|descriptor| descriptor[0] == PROTOCOL);
    let (mut hashes, mut groups) = (Vec::new(), Vec::new());
    if let Some(descriptor) = ours {
        let (hash_count, group_count) = (descriptor[2].into(), descriptor[3].into());
        let (hash_ids, group_ids) = descriptor[LISTS..].split_at(GROUPS);
        let known = hash_ids.get(..hash_count)?.iter();
        hashes.extend(known.filter_map(|id| Hash::of(*id)));
        let known = group_ids.get(..group_count)?.iter();
        groups.extend(known.filter_map(|id| Group::of(*id)));
    }
    Some(Message::Negotiate {
        without_channel: channel == 0,
        has_protocol: ours.is_some(),
        hashes,
        groups,
    })
}

fn parse_values(bytes: &[u8]) -> Option<(usize, usize, u32, &[u8])> {
    let (fixed, values) = bytes.split_first_chunk::<FIXED>()?;
    let hash_len = usize::from(fixed[6]);
    let key_len = usize::from(u16::from_le_bytes([fixed[10], fixed[11]]));
    // DHVLEN must be a multiple of 4 (Base 2.0).
    if key_len % 4 != 0 {
        return None;
    }
    let seqnum = u32::from_le_bytes([fixed[12], fixed[13], fixed[14], fixed[15]]);
    Some((hash_len, key_len, seqnum, values))
}

fn parse_challenge(bytes: &[u8]) -> Option<Message<'_>> {
    let (hash_len, key_len, seqnum, values) = parse_values(bytes)?;
    let (challenge, rest) = values.split_at_checked(hash_len)?;
    Some(Message::Challenge {
        hash: bytes[8],
        group: bytes[9],
        seqnum,
        challenge,
        public_key: rest.get(..key_len)?,
    })
}

fn parse_reply(bytes: &[u8]) -> Option<Message<'_>> {
    let (hash_len, key_len, seqnum, values) = parse_values(bytes)?;
    let (response, rest) = values.split_at_checked(hash_len)?;
    let (challenge, rest) = rest.split_at_checked(hash_len)?;
    let challenge = match bytes[8] {
        0 => None,
        // SEQNUM 0 requires a secure channel, which is not supported.
        1 if seqnum != 0 => Some(challenge),
        _ => return None,
    };
    Some(Message::Reply {
        response,
        challenge,
        seqnum,
        public_key: rest.get(..key_len)?,
    })
}

fn parse_success(bytes: &[u8]) -> Option<Message<'_>> {
    let (fixed, values) = bytes.split_first_chunk::<FIXED>()?;
    let response = match fixed[8] {
        0 => None,
        1 => Some(values.get(..usize::from(fixed[6]))?),
        _ => return None,
    };
    Some(Message::Success1 {
        hash_len: fixed[6],
        response,
    })
}

fn parse_failure(bytes: &[u8]) -> Option<Reason> {
    bytes.get(..FAILURE_BYTES).map(|bytes| Reason::of(bytes[7]))
}
