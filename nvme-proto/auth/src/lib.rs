//! DH-HMAC-CHAP (Base 2.0, section 8.13.5; TP 8006) without I/O.
//!
//! The host proves possession of a secret, and may require a proof from the controller.
//!
//! - [`Secret`]: shared secret, as text `DHHC-1:...`.
//! - [`Hash`](enum@Hash), [`Group`], [`Policy`]: accepted parameters.
//! - [`controller`], [`host`]: state machines of both sides.
//! - [`message`]: wire format.
//!
//! The caller supplies random numbers. Parsers of peer input never panic. Secrets and derived
//! values are overwritten when dropped, compared in constant time, and hidden from `Debug`.
//!
//! With large groups, a step takes milliseconds of CPU time: use a thread that is not
//! latency-critical.

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

/// Fills a slice with random bytes that a peer cannot predict.
pub type Random<'a> = &'a mut dyn FnMut(&mut [u8]);

/// Parameters accepted by host or controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Accepted hash functions, best first.
    pub hashes: Vec<Hash>,
    /// Accepted groups, best first.
    pub groups: Vec<Group>,
}

impl Default for Policy {
    /// Returns all hash functions and groups, strongest first.
    fn default() -> Self {
        Self {
            hashes: Hash::ALL.iter().rev().copied().collect(),
            groups: Group::ALL.iter().rev().copied().collect(),
        }
    }
}

/// NQNs of host and subsystem, which every response includes.
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
    /// Secret for the host's responses.
    pub host: Secret,
    /// Secret for the controller's responses. On a host, `Some` requires the controller to
    /// authenticate.
    pub controller: Option<Secret>,
}

/// Parameters of a successful authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authenticated {
    /// Negotiated hash function.
    pub hash: Hash,
    /// Negotiated Diffie-Hellman group.
    pub group: Group,
    /// True if the controller authenticated too.
    pub mutual: bool,
}
