//! Compatibility with other targets: SPDK's JSON-RPC methods, and conversion of configurations of
//! SPDK and the kernel target (nvmet). The methods reach the running target only through
//! [`Control`].

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
// Public items are for `cairn-target`; names and types document them.
#![allow(missing_docs)]

mod control;
mod convert;
pub mod spdk;

pub use control::{Changing, Control, Controller, Export, IoCounts, Queue, Reactor, Snapshot};
pub use convert::{Converted, from_nvmet, from_spdk, to_nvmet, to_spdk};
