//! NVMe and NVMe over Fabrics protocol logic without I/O, for targets and hosts.
//!
//! The target side is a [`Subsystem`](subsystem::Subsystem). The target splits each received
//! capsule into SQE and in-capsule data ([`Sqe::split_capsule`](wire::Sqe::split_capsule)). It
//! passes the first command of a queue to [`Subsystem::connect`](subsystem::Subsystem::connect) and
//! admin commands to [`Subsystem::execute`](subsystem::Subsystem::execute), and executes I/O
//! commands parsed by [`IoCommand::parse`](io::IoCommand::parse) on its disk. Calls return
//! completions to send, or append [`Action`](controller::Action)s to carry out.
//!
//! The host side is an [`Association`](host::Association). Its driver connects queues and sends
//! commands as [`next_action`](host::Association::next_action) requests, and passes responses to
//! [`completed`](host::Association::completed).
//!
//! Neither side reads a clock: `now` is the time since a fixed origin. The caller calls
//! [`tick`](host::Association::tick) or [`poll`](subsystem::Subsystem::poll) at the time given by
//! [`deadline`](host::Association::deadline) or
//! [`next_deadline`](subsystem::Subsystem::next_deadline).
//!
//! The crate is `no_std` with `alloc`, opens no sockets, files or threads, and never waits. It
//! locates the data of a command ([`DataTransfer`](transfer::DataTransfer)); the caller transfers
//! and stores the data, and computes authentication messages. PCIe controllers and the TCP binding
//! are not implemented. Parsers of peer input never panic.
//!
//! # Map of the types
//!
//! | Task | Start here |
//! |---|---|
//! | Read and write wire structures | [`wire`]: [`Sqe`](wire::Sqe), [`Cqe`](wire::Cqe), [`Status`](wire::Status), [`Nqn`](wire::Nqn), [`SglDescriptor`](wire::SglDescriptor) |
//! | Accept a connection | [`controller::connect::admit`], [`ConnectRequest`](controller::ConnectRequest), [`Arrival`](subsystem::Arrival) |
//! | Serve a subsystem | [`Subsystem`](subsystem::Subsystem), [`Settings`](subsystem::Settings), [`Limits`](limits::Limits), [`Namespace`](namespace::Namespace) |
//! | Serve the discovery log | [`Subsystem::discovery`](subsystem::Subsystem::discovery), [`discovery`] |
//! | Execute a Compare and Write | [`fused`] |
//! | Use several paths as a host | [`host::multipath`], [`host::requeue`] |
//!
//! # Growth of the specification
//!
//! Opcodes, status codes, log pages and features are integers with named constants, so unknown
//! values are preserved. Enums of errors, events and parsed admin commands are `#[non_exhaustive]`;
//! enums that the caller must handle completely, such as [`controller::Action`], are not.
//!
//! Sections and figures refer to the NVM Express Base Specification 2.0 ("Base"), NVM Command Set
//! Specification 1.0 ("NVM") and RDMA Transport Specification 1.0 ("RDMA").

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
pub mod fused;
pub mod host;
pub mod io;
pub mod limits;
pub mod namespace;
pub mod reservation;
pub mod subsystem;
pub mod transfer;
mod window;
pub mod wire;
