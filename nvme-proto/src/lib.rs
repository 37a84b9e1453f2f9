//! NVMe and NVMe over Fabrics protocol logic without I/O.
//!
//! An NVMe over Fabrics target or host consists of a transport that moves bytes and of protocol rules: which Connect is
//! valid, which property may change when, which completion follows a command, when an association has ended. This crate
//! implements the rules for both sides as state machines, so that they can be tested without a network and used with
//! any transport, thread model and disk. It also defines the wire structures, which both sides share.
//!
//! The target side is a [`Subsystem`](subsystem::Subsystem). The target splits each received capsule into SQE and
//! in-capsule data ([`Sqe::split_capsule`](wire::Sqe::split_capsule)). It passes the first command of a queue to
//! [`Subsystem::connect`](subsystem::Subsystem::connect), and commands of the admin queue to
//! [`Subsystem::execute`](subsystem::Subsystem::execute). It parses I/O commands itself with
//! [`IoCommand::parse`](io::IoCommand::parse) and executes them on its disk. Each call returns a completion for the
//! target to send, or appends [`Action`](controller::Action)s for the target to carry out. The host side is an
//! [`Association`](host::Association). Its driver carries out the actions of
//! [`next_action`](host::Association::next_action): it connects queues and sends commands, and passes responses to
//! [`completed`](host::Association::completed). Neither side reads a clock. Calls receive the time since a fixed origin
//! as `now`, and the caller calls [`tick`](host::Association::tick) or [`poll`](subsystem::Subsystem::poll) when the
//! time in [`deadline`](host::Association::deadline) or [`next_deadline`](subsystem::Subsystem::next_deadline) is
//! reached.
//!
//! The crate opens no sockets, files or threads, and never waits. It does not move data: it locates the data of a
//! command ([`DataTransfer`](transfer::DataTransfer)), and the caller transfers it, for example by RDMA. It does not
//! schedule or store blocks, and it does not compute authentication messages, but states when they are due. It
//! implements neither PCIe controllers nor the TCP transport binding. The crate is `no_std` with `alloc`. Parsers of
//! peer input never panic.
//!
//! The examples `target` and `host` of this crate are complete programs: a target whose disk is memory, and a host that
//! connects to it. Their transport is a function call.
//!
//! # Map of the types
//!
//! | Task | Start here |
//! |---|---|
//! | Read and write wire structures | [`wire`]: [`Sqe`](wire::Sqe), [`Cqe`](wire::Cqe), [`Status`](wire::Status), [`Nqn`](wire::Nqn), [`SglDescriptor`](wire::SglDescriptor) |
//! | Accept a connection | [`controller::connect::admit`], [`ConnectRequest`](controller::ConnectRequest), [`Arrival`](subsystem::Arrival) |
//! | Serve a subsystem | [`Subsystem`](subsystem::Subsystem), [`Settings`](subsystem::Settings), [`Limits`](limits::Limits), [`Namespace`](namespace::Namespace) |
//! | Execute admin commands | [`AdminCommand`](controller::AdminCommand), [`Exchange`](controller::Exchange), [`Outcome`](controller::Outcome), [`Action`](controller::Action) |
//! | Execute I/O commands | [`IoCommand`](io::IoCommand), [`Operation`](io::Operation), [`DataTransfer`](transfer::DataTransfer) |
//! | Reject a command | [`Refusal`](controller::Refusal), [`Status`](wire::Status) |
//! | Inspect an association at the target | [`Controller`](controller::Controller), [`Host`](controller::Host) |
//! | Serve the discovery log | [`Subsystem::discovery`](subsystem::Subsystem::discovery), [`discovery`] |
//! | Report asymmetric access | [`AnaStates`](ana::AnaStates) |
//! | Connect as a host | [`Association`](host::Association), [`Settings`](host::Settings), [`Action`](host::Action), [`Report`](host::Report) |
//! | Use several paths as a host | [`host::multipath`], [`host::requeue`] |
//!
//! # Growth of the specification
//!
//! Opcodes, status codes, log pages and features are integers with named constants, so that values unknown to this
//! crate are preserved. Enums of errors, events and parsed admin commands are `#[non_exhaustive]`. An enum that the
//! caller must handle completely, such as [`controller::Action`] or [`io::Operation`], is exhaustive: the compiler
//! reports each place that does not handle a new variant.
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
