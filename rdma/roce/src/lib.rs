//! RoCE in user space: RDMA with no RDMA device and no kernel module.
//!
//! From the wire up:
//!
//! * [`wire`]: every header as a value, and the ICRC;
//! * [`qp`]: a reliable connection's queue pair, as a state machine that takes
//!   packets and the time and gives packets and completions;
//! * [`cm`]: the connection manager, of the same kind.

pub mod chance;
pub mod cm;
pub mod counters;
pub mod phy;
pub mod qp;
pub mod soft;
pub mod wire;

pub use phy::capture;
pub use soft::{Soft, SoftOptions};
