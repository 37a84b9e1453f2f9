//! NVMe and NVMe over Fabrics, without any I/O.
//!
//! - [`wire`]: what is on the wire, byte for byte: submission and completion
//!   queue entries, SGL descriptors, status codes, Fabrics commands,
//!   properties, identify data, log pages, features, and the private data that
//!   RDMA connection requests carry.
//! - [`subsystem`]: what a host connects to, and the way in to all that follows.
//! - [`controller`]: what a host then talks to: Connect, properties, admin
//!   commands, events, the keep alive timer.
//! - [`host`]: the other side: what connects to a controller, keeps it alive, and
//!   connects again.
//! - [`discovery`]: what a host learns of the subsystems.
//! - [`ana`]: which of several ways to a namespace is a good one.
//! - [`namespace`], [`limits`]: the disks, and every limit by name.
//! - [`transfer`]: where a command's data is, checked against what it needs.
//! - [`io`]: the commands of I/O queues, parsed once into what can be executed.
//!
//! The crate knows no socket, clock, thread or file: it is `no_std` and needs
//! `alloc` alone. Bytes and typed values go in, typed values and bytes come
//! out. Everything a peer sends is parsed by functions that take slices, never
//! panic and never read past the slice.
//!
//! Section numbers refer to the NVM Express Base Specification 2.0 ("Base"),
//! the NVM Command Set Specification 1.0 ("NVM"), and the NVMe over Fabrics
//! RDMA Transport Specification 1.0 ("RDMA").

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod access;
pub mod ana;
mod common;
pub mod controller;
pub mod discovery;
pub mod host;
pub mod io;
pub mod limits;
pub mod namespace;
pub mod subsystem;
pub mod transfer;
mod window;
pub mod wire;
