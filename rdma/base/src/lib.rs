//! Tools for all Cairn crates: clocks, wake-ups, log limits, panics, memory and tables.
//!
//! This crate does not depend on RDMA, NVMe or disks. Without the feature `std`, the crate has only
//! value types.

#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

pub mod address;
pub mod allowance;
#[cfg(feature = "std")]
pub mod clock;
#[cfg(feature = "std")]
pub mod entropy;
#[cfg(feature = "std")]
pub mod image_spec;
#[cfg(feature = "std")]
pub mod local_socket;
#[cfg(feature = "std")]
pub mod log;
#[cfg(feature = "std")]
pub mod mailbox;
#[cfg(feature = "std")]
pub mod mapping;
#[cfg(feature = "std")]
pub mod netlink;
#[cfg(feature = "std")]
pub mod panics;
#[cfg(feature = "std")]
pub mod peer_limit;
#[cfg(feature = "std")]
pub mod permission;
#[cfg(feature = "std")]
pub mod scope;
#[cfg(feature = "std")]
pub mod shell;
pub mod slab;
#[cfg(feature = "std")]
pub mod sync;
#[cfg(feature = "std")]
pub mod traddr;
#[cfg(feature = "std")]
pub mod wake;

#[cfg(feature = "std")]
pub use clock::Clock;
#[cfg(feature = "std")]
pub use image_spec::ImageSpec;
#[cfg(feature = "std")]
pub use mapping::Mapping;
#[cfg(feature = "std")]
pub use peer_limit::PeerLimit;
#[cfg(feature = "std")]
pub use permission::permission;
#[cfg(feature = "std")]
pub use scope::ScopedAddr;
#[cfg(feature = "std")]
pub use traddr::{Traddr, TraddrError, Trid};
