//! JSON-RPC 2.0 over a Unix socket: protocol of the target's control socket, and the types of its
//! configuration changes.
//!
//! A JSON value ends at its closing bracket, because SPDK's clients send neither a length nor a
//! line end. Clients are untrusted: request sizes, connections and waiting times are bounded, and
//! no client waits for another.

// Public items are for `cairn-target`; names and types document them.
#![allow(missing_docs)]

mod budget;
mod change;
mod frame;
mod lock;
mod message;
mod parameters;
mod place;
mod server;

mod client;

pub use budget::USER_BYTES_MAX;
pub use change::{Declared, Disk, Effect, Kind, Stage};
pub use client::{CallError, Client, chosen_path};
pub use frame::{FrameError, Frames, REQUEST_BYTES_MAX};
pub use lock::{PathLock, of_process};
#[cfg(feature = "fuzzing")]
pub use message::parses;
pub use message::{Error, Request};
pub use parameters::{Nothing, read, whole_numbers};
pub use place::{BindError, Bound, Plan, default_path};
pub use server::{
    CONNECTIONS_MAX, CONNECTIONS_OF_USER_MAX, CONNECTIONS_RESERVED, Handler, Patience, Peer, serve,
};
