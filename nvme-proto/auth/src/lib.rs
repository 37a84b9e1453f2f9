//! DH-HMAC-CHAP (NVM Express Base Specification 2.0, section 8.13.5; TP 8006) without I/O.
//!
//! A host proves possession of a secret, and may require a proof from the controller. No secret
//! crosses the network.
//!
//! - [`Secret`]: shared secret, in text form `DHHC-1:...`.
//! - [`Hash`](enum@Hash), [`Group`], [`Policy`]: accepted parameters, the best first.
//! - [`controller`]: answers Authentication Send and Authentication Receive.
//! - [`host`]: sends these commands.
//! - [`message`]: wire format of the messages.
//!
//! The caller supplies random numbers. All peer input is parsed by functions that take slices,
//! never panic and never read beyond the slice. Secrets and derived values are overwritten when
//! dropped, compared in constant time, and never shown by `Debug`.
//!
//! A step with one of the larger groups takes milliseconds of processor time. Callers with other
//! work must run it on a separate thread.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod controller;
mod group;
mod hash;
pub mod host;
pub mod message;
mod primes;
mod response;
mod secret;

pub use group::Group;
pub use hash::Hash;
pub use message::Reason;
pub use secret::{Secret, SecretError};

use alloc::string::String;
use alloc::vec::Vec;

/// Callback that fills a slice with random bytes that a peer cannot predict.
pub type Random<'a> = &'a mut dyn FnMut(&mut [u8]);

/// Accepted parameters, the best first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Hash functions.
    pub hashes: Vec<Hash>,
    /// Diffie-Hellman groups.
    pub groups: Vec<Group>,
}

impl Default for Policy {
    /// All parameters, the strongest first.
    fn default() -> Self {
        Self {
            hashes: Hash::ALL.iter().rev().copied().collect(),
            groups: Group::ALL.iter().rev().copied().collect(),
        }
    }
}

/// NQNs of both ends, which are part of each response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// HOSTNQN.
    pub host: String,
    /// SUBNQN.
    pub subsystem: String,
}

/// Secrets of a host and a subsystem.
#[derive(Debug, Clone)]
pub struct Secrets {
    /// Secret of the host.
    pub host: Secret,
    /// Secret of the controller, used if the host requires its authentication.
    pub controller: Option<Secret>,
}

/// Result of a successful authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authenticated {
    /// Hash function of the responses.
    pub hash: Hash,
    /// Diffie-Hellman group.
    pub group: Group,
    /// Whether the controller authenticated too.
    pub mutual: bool,
}
