//! NVMe and NVMe over Fabrics protocol logic without I/O.
//!
//! - [`wire`]: wire formats.
//! - [`subsystem`]: an NVM subsystem, the entry point to the target side.
//! - [`controller`]: a controller: Connect, properties, admin commands, events, keep alive timer.
//! - [`host`]: the host side.
//! - [`discovery`]: the discovery log.
//! - [`ana`]: access states of the paths to a namespace.
//! - [`namespace`], [`limits`]: namespaces and limits.
//! - [`transfer`]: validated data locations of commands.
//! - [`io`]: I/O commands.
//!
//! The crate is `no_std` with `alloc`, and uses no sockets, clocks, threads or files. Functions
//! that parse peer input take slices and never panic.
//!
//! Section numbers refer to the NVM Express Base Specification 2.0 ("Base"), the NVM Command Set
//! Specification 1.0 ("NVM"), and the NVMe over Fabrics RDMA Transport Specification 1.0 ("RDMA").

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
