//! An NVMe over Fabrics host on RDMA, in user space.
//!
//! ```no_run
//! use cairn_initiator::{Host, HostOptions, Identity, Nqn, Soft};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = HostOptions::new(
//!     "192.0.2.1:4420".parse()?,
//!     Nqn::parse("nqn.2024-01.com.example:db")?,
//!     Identity::of_this_machine()?,
//! );
//! let mut host = Host::connect(&Soft::default(), options)?;
//! let disk = host.open_namespace(1)?;
//! let block = disk.read(&mut host, 0, 1)?;
//! println!("{:?}", &block[..16]);
//! host.shutdown()?;
//! # Ok(())
//! # }
//! ```
//!
//! The crate has three layers:
//!
//! * A [`Controller`] is one association with its queues. It never blocks or reads a clock:
//!   [`Controller::begin`] starts it, [`Controller::poll`] makes progress, and
//!   [`Controller::next_deadline`] is the time of the next poll.
//! * A [`Host`] is a controller with a clock, whose methods block.
//! * An [`AsyncHost`] runs a host on a thread and returns futures, for any executor.
//!
//! A [`Multipath`](multipath::Multipath) combines several controllers of a namespace.
//!
//! # Commands
//!
//! [`Namespace::read`], [`Namespace::write`] and similar methods block and copy data. To avoid the
//! copy, submit commands built by a [`Namespace`] ([`Namespace::read_command`]); the [`command`]
//! module builds [`Sqe`]s for the admin queue. [`Controller::submit`] takes a [`Command`] and
//! returns a [`Ticket`]; [`Controller::take`] returns the result. The data path does not allocate,
//! lock or copy, except into capsules.
//!
//! A namespace must be opened before I/O ([`Host::open_namespace`]), and is identified again after
//! each reconnection and reported change. If its NSID then refers to another disk, commands end in
//! [`HostError::Replaced`] until the namespace is opened again.
//!
//! Every command ends exactly once ([`Ended`]). Until then, the command owns its buffer, so the
//! program cannot change or free memory that the controller may access.
//!
//! # Errors and recovery
//!
//! A command that exceeds [`HostOptions::command_timeout`] is aborted. The controller counts as
//! lost if the abort has no effect, a connection breaks, a Keep Alive has no response, or the
//! controller violates the protocol. [`Recovery`] configures reconnection.
//!
//! With [`HostOptions::requeue`], idempotent commands ([`nvme_proto::host::requeue`]) wait for the
//! reconnection, and end in [`HostError::Lost`] if it fails or `fast_io_fail_tmo` expires.
//!
//! # Discovery and administration
//!
//! [`Host`] has methods for admin commands. [`discover`] reads a discovery log, [`discover_all`]
//! follows referrals, and a [`Discovery`] stays connected and reports changes.
//!
//! Metadata and SGLs with several descriptors are not supported.
//!
//! [`Sqe`]: nvme_proto::wire::Sqe

mod admin;
mod blocks;
mod buffer;
pub mod command;
mod controller;
mod discovery;
mod error;
mod event;
mod futures;
mod host;
pub mod identity;
pub mod multipath;
mod namespace;
mod opening;
mod options;
pub mod providers;
mod queue;
mod reading;
mod reservations;
mod waiting;

pub use cairn_rdma::{Device, Provider};
#[cfg(feature = "soft")]
pub use cairn_roce::{Soft, SoftOptions};
#[cfg(feature = "verbs")]
pub use cairn_verbs::VerbsProvider;
pub use nvme_proto::reservation;
pub use nvme_proto::wire::{self, Nqn, Sqe, Status};

pub use buffer::{Buffer, Data};
pub use controller::Controller;
pub use discovery::{
    Discovered, Discovery, DiscoveryLog, Route, SERVICES_MAX, Service, discover, discover_all,
};
pub use error::{HostError, Loss};
pub use event::Event;
pub use futures::{AsyncHost, Completion};
pub use host::Host;
pub use identity::Identity;
pub use namespace::{Command, Namespace};
pub use nvme_auth::{Secret, SecretError, Secrets};
pub use nvme_proto::host::{AssociationState, Cause, Notice, Recovery, all_notices};
pub use options::HostOptions;
pub use queue::{Ended, IoQueue, Response, Ticket, Unsent};
pub use reservations::ReservationReport;
