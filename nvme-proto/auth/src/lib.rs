//! DH-HMAC-CHAP (Base 2.0, section 8.13.5; TP 8006) without I/O.
//!
//! A host proves possession of a secret, and may require a proof from the controller.
//!
//! - [`Secret`]: shared secret, in text form `DHHC-1:...`.
//! - [`Hash`](enum@Hash), [`Group`], [`Policy`]: accepted parameters.
//! - [`controller`], [`host`]: both ends.
//! - [`message`]: wire format.
//!
//! The caller supplies random numbers. Functions that parse peer input take slices and never panic.
//! Secrets and derived values are overwritten when dropped, compared in constant time, and never
//! printed by `Debug`.
//!
//! A step with a large group takes milliseconds of processor time, so callers with other work need
//! a separate thread.

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

/// Callback that fills a slice with random bytes unpredictable for a peer.
pub type Random<'a> = &'a mut dyn FnMut(&mut [u8]);

/// Accepted parameters, most preferred first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Hash functions.
    pub hashes: Vec<Hash>,
    /// Diffie-Hellman groups.
    pub groups: Vec<Group>,
}

impl Default for Policy {
    /// Every parameter, strongest first.
    fn default() -> Self {
        Self {
            hashes: Hash::ALL.iter().rev().copied().collect(),
            groups: Group::ALL.iter().rev().copied().collect(),
        }
    }
}

/// NQNs of both ends, as inputs of each response.
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
    /// Secret of the controller, if the host requires its authentication.
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
