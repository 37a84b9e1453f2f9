//! NVMe and NVMe over Fabrics protocol logic without I/O.
//!
//! - [`wire`]: wire structures of commands, data and connections.
//! - [`subsystem`]: NVM subsystem, the entry point of the target side.
//! - [`controller`]: controller of the target: Connect, properties, admin commands, events, keep alive.
//! - [`host`]: host side of an association.
//! - [`discovery`]: the discovery log.
//! - [`ana`]: asymmetric namespace access.
//! - [`namespace`], [`limits`]: namespaces of a subsystem, and limits of controllers.
//! - [`transfer`]: validated locations of command data.
//! - [`io`]: parser of I/O commands.
//!
//! The crate is `no_std` with `alloc`; it uses no sockets, clocks, threads or files. Parsers of peer input never panic.
//!
//! Section and figure numbers refer to the NVM Express Base Specification 2.0 ("Base"), the NVM Command Set
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
