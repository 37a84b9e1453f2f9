//! RoCE in user space: RDMA with no RDMA device and no kernel module.
//!
//! From the wire up:
//!
//! * [`wire`]: every header as a value, and the ICRC.

pub mod wire;
