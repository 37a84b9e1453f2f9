//! What a fabric is, for everyone in the house who moves data over one.
//!
//! Three nouns, from the process down to the thread:
//!
//! * a [`Provider`] knows how to reach a network (verbs, user-space RoCE, or
//!   [`loopback`] inside one process) and listens on its addresses;
//! * a [`Device`] is one network adapter of that provider. It registers memory,
//!   and all reactors share it;
//! * an [`Endpoint`] is one reactor's presence on a device: one completion
//!   queue, one shared receive queue, and the queue pairs that were accepted or
//!   connected there. It never leaves its thread.
//!
//! Work goes in by [`Endpoint::post`] and [`Endpoint::post_receives`], comes
//! back by [`Endpoint::poll`], and connections report by
//! [`Endpoint::poll_events`]. Nothing here blocks and nothing here allocates
//! once the endpoint is open, but for connection set-up and tear-down.

pub mod address;
pub mod allowance;
pub mod clock;
pub mod complaints;
pub mod connection;
pub mod entropy;
pub mod error;
pub mod log;
pub mod loopback;
pub mod marking;
pub mod memory;
pub mod partition;
pub mod provider;
pub mod sleep;
pub mod wake;
pub mod work;

pub use clock::Clock;
pub use complaints::Complaints;
pub use connection::{
    ConnHandle, ConnectOptions, DisconnectReason, Event, ListenOptions, PrivateData, QpOptions,
};
pub use error::{FabricError, PostError};
pub use marking::{Marked, Marking};
pub use memory::{Access, Mapping, Region};
pub use partition::PKey;
pub use provider::{
    ConnRequest, Device, DeviceCounters, Endpoint, EndpointLimits, EndpointOptions, Listener,
    ListenerEvent, Provider, Sink,
};
pub use sleep::{sleep_until_any_ready, sleep_until_ready, sleep_until_ready_or_woken};
pub use work::{
    Completion, CompletionKind, MAX_SGE, Operation, QpId, RecvWork, RemoteBuffer, SendWork, Sge,
    SgeList, WorkStatus,
};
