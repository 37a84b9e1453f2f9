//! RoCE in user space: RDMA without an RDMA device or kernel module.
//!
//! * [`phy`]: sending and receiving of packets.
//! * [`memory`]: registered memory by its keys.
//! * [`soft`]: the provider, its devices and endpoints.
//!
//! The protocol is in `cairn-roce-proto`.

pub mod memory;
pub mod phy;
pub mod soft;
mod time;

pub use phy::capture;
pub use soft::{Soft, SoftOptions};
