//! RDMA provider for adapters, based on libibverbs and librdmacm.
//!
//! Both libraries are loaded at run time, so programs start without them ([`Library::open`]).
//!
//! * [`VerbsProvider`] tracks open devices, and listens.
//! * A device (`device`) is opened once, and has one or more protection domains. Its `watcher`
//!   thread sends asynchronous events to the endpoints.
//! * An endpoint (`endpoint`) has one completion queue, one event channel and one shared receive
//!   queue, for one thread. If the device has no shared receive queues, each queue pair has its own
//!   receive queue (`receive_quotas`).
//! * `cm` and `objects` own the objects of librdmacm and libibverbs; `sys` has the C declarations.

mod address;
mod chain;
mod cm;
mod device;
mod devices;
mod diagnosis;
mod endpoint;
mod explain;
#[cfg(test)]
mod fake;
mod library;
mod listener;
mod number_hash;
mod objects;
mod pkey_table;
mod provider;
#[cfg(any(test, feature = "quirks"))]
mod quirks;
mod receive_quotas;
mod receives;
mod region_table;
mod request;
mod send_ring;
mod sys;
mod watcher;

pub use diagnosis::{DeviceAttributes, PortMtu, device_attributes, port_mtu};
pub use library::{Library, LibraryError};
pub use provider::VerbsProvider;
#[cfg(any(test, feature = "quirks"))]
pub use quirks::{Quirks, SharedReceives};
