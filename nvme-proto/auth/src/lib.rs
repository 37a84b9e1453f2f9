//! DH-HMAC-CHAP (NVM Express Base Specification 2.0, section 8.13.5; TP 8006), without any I/O.
//!
//! A host proves that it has a secret, and may ask the controller for the same. Neither secret
//! crosses the network.
//!
//! - [`Secret`]: what both ends have, as text `DHHC-1:...`.
//! - [`Hash`](enum@Hash), [`Group`], [`Policy`]: what an end accepts, the best first.
//! - [`controller`]: what answers Authentication Send and Authentication Receive.
//! - [`host`]: what sends them.
//! - [`message`]: the messages, byte for byte.
//!
//! Bytes go in and bytes come out; the caller brings random numbers. Everything that a peer sends
//! is parsed by functions that take slices, never panic and never read past the slice. Secrets and
//! what is made of them are overwritten when they are dropped, compared in constant time, and no
//! `Debug` shows them.
//!
//! A step of the larger groups takes milliseconds of a processor: a caller that serves others
//! does it on a thread of its own.

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

/// Fills a slice with random bytes that no peer can guess.
pub type Random<'a> = &'a mut dyn FnMut(&mut [u8]);

/// What an end accepts, the best first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Hash functions.
    pub hashes: Vec<Hash>,
    /// Diffie-Hellman groups.
    pub groups: Vec<Group>,
}

impl Default for Policy {
    /// All, the strongest first.
    fn default() -> Self {
        Self {
            hashes: Hash::ALL.iter().rev().copied().collect(),
            groups: Group::ALL.iter().rev().copied().collect(),
        }
    }
}

/// Who authenticates to whom. Both names are part of each response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// HOSTNQN.
    pub host: String,
    /// SUBNQN.
    pub subsystem: String,
}

/// The secrets of a host and a subsystem.
#[derive(Debug, Clone)]
pub struct Secrets {
    /// By which the host authenticates.
    pub host: Secret,
    /// By which the controller does, where the host asks for it.
    pub controller: Option<Secret>,
}

/// The end of an authentication that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authenticated {
    /// The hash function of the responses.
    pub hash: Hash,
    /// The Diffie-Hellman group.
    pub group: Group,
    /// Whether the controller authenticated as well.
    pub mutual: bool,
}
