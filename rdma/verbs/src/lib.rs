//! The fabric over RDMA adapters, by libibverbs and librdmacm.
//!
//! Both libraries are opened at run time: a program that has this provider
//! starts where they are missing, and says what to install when it is asked to
//! use them. See [`Library::open`].
//!
//! From the outside in:
//!
//! * [`VerbsProvider`] knows the devices that are open, and listens;
//! * a device (`device`) is opened once, with one protection domain, so that
//!   memory is registered once for all reactors. Its `watcher` thread reads
//!   the device's asynchronous events and mails them to the endpoints;
//! * an endpoint (`endpoint`) has one completion queue, one shared receive
//!   queue and one channel for connection events, all on its own thread;
//! * `cm` and `objects` own librdmacm's and libibverbs' objects, and `sys` is C.
//!
//! `unsafe` stands in those last three, in `chain` (C's structures) and in the
//! few lines that make system calls.

mod address;
mod chain;
mod cm;
mod device;
mod devices;
mod endpoint;
mod explain;
mod library;
mod listener;
mod objects;
mod pkey_table;
mod port;
mod provider;
mod receives;
mod region_table;
mod request;
mod send_ring;
mod sys;
mod watcher;

pub use library::{Library, LibraryError};
pub use port::{PortMtu, port_mtu};
pub use provider::VerbsProvider;
