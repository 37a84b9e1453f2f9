//! NVMe and NVMe over Fabrics protocol logic without I/O.
//!
//! - [`wire`]: wire formats: submission and completion queue entries, SGL descriptors, status
//!   codes, Fabrics commands, properties, identify data, log pages, features, and the private data
//!   of RDMA connection requests.
//! - [`subsystem`]: an NVM subsystem, the entry point to the target side.
//! - [`controller`]: a controller: Connect, properties, admin commands, events, keep alive timer.
//! - [`host`]: the host side: connects to a controller, keeps it alive, and reconnects.
//! - [`discovery`]: the discovery log.
//! - [`ana`]: access states of the paths to a namespace.
//! - [`namespace`], [`limits`]: namespaces, and all limits by name.
//! - [`transfer`]: the location of a command's data, validated against its length.
//! - [`io`]: I/O commands, parsed once into an executable form.
//!
//! The crate is `no_std`, needs only `alloc`, and uses no sockets, clocks, threads or files. It
//! converts bytes to typed values and back. All peer input is parsed by functions that take slices,
//! never panic and never read beyond the slice.
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
