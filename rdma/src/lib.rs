//! RDMA traits: providers, devices, endpoints and work requests.
//!
//! * A [`Provider`] gives access to a network: verbs, user-space RoCE, or [`loopback`] inside one
//!   process.
//! * A [`Device`] is one network adapter. It registers memory, and all reactors share it.
//! * An [`Endpoint`] has the queues of one reactor on a device: a completion queue, a shared
//!   receive queue, and queue pairs. An endpoint stays on one thread.
//!
//! The data path neither blocks nor allocates. Without the feature `std`, the crate has only value
//! types.

#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

pub mod access;
#[cfg(feature = "std")]
mod ack_timeout;
#[cfg(feature = "std")]
pub mod connection;
#[cfg(feature = "std")]
pub mod error;
#[cfg(feature = "std")]
pub mod loopback;
pub mod marking;
#[cfg(feature = "std")]
pub mod memory;
pub mod partition;
#[cfg(feature = "std")]
pub mod provider;
#[cfg(feature = "std")]
pub mod sleep;
pub mod work;

pub use access::Access;
#[cfg(feature = "std")]
pub use ack_timeout::AckTimeout;
#[cfg(feature = "std")]
pub use cairn_base::Mapping;
#[cfg(feature = "std")]
pub use connection::{
    ConnHandle, ConnectOptions, DisconnectReason, Event, ListenOptions, PrivateData, QpOptions,
    Roce,
};
#[cfg(feature = "std")]
pub use error::FabricError;
pub use marking::{Marked, Marking};
#[cfg(feature = "std")]
pub use memory::Region;
pub use partition::PKey;
#[cfg(feature = "std")]
pub use provider::{
    ConnRequest, Device, DeviceCounters, Endpoint, EndpointLimits, EndpointOptions, Listener,
    ListenerEvent, Provider, Sink, Trains,
};
#[cfg(feature = "std")]
pub use sleep::{
    sleep_beside, sleep_until_any_ready, sleep_until_ready, sleep_until_ready_or_woken,
};
pub use work::{
    Completion, CompletionKind, MAX_SGE, Operation, PostError, QpId, RecvWork, RemoteBuffer,
    SendWork, Sge, SgeList, WorkStatus,
};

/// UDP destination port of all RoCE v2 packets, responses included (IBTA annex A17.3).
pub const ROCE_PORT: u16 = 4791;

/// Receive buffer in bytes that the soft provider requests for a socket; the system may grant less.
pub const SOCKET_RECEIVE_BYTES: u32 = 8 << 20;
