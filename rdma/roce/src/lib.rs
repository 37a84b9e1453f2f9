//! RoCE in user space: RDMA with no RDMA device and no kernel module.
//!
//! * [`phy`]: how packets leave the process and come in;
//! * [`memory`]: registered memory, by its keys;
//! * [`soft`]: the provider, its devices and endpoints.
//!
//! What packets mean, when they are sent and what answers them is decided in
//! `cairn-roce-proto`, which has no I/O.

pub mod memory;
pub mod phy;
pub mod soft;
mod time;

pub use phy::capture;
pub use soft::{Soft, SoftOptions};
