//! Compatibility with other targets: SPDK's JSON-RPC methods, and conversion of saved configurations
//! of SPDK and of the kernel target (nvmet).
//!
//! The methods query and change the running target through [`Control`] alone.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod control;
mod convert;
pub mod spdk;

pub use control::{Changing, Control, Controller, Export, IoCounts, Queue, Reactor, Snapshot};
pub use convert::{Converted, from_nvmet, from_spdk, to_nvmet, to_spdk};
