//! An NVMe over Fabrics host on RDMA, in user space.
//!
//! ```no_run
//! use cairn_initiator::{Data, Host, HostOptions, Identity, Nqn, Soft};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = HostOptions::new(
//!     "192.0.2.1:4420".parse()?,
//!     Nqn::parse("nqn.2024-01.com.example:db")?,
//!     Identity::of_this_machine()?,
//! );
//! let mut host = Host::connect(&Soft::default(), options)?;
//! let disk = host.open_namespace(1)?;
//! let mut buffer = host.buffer(disk.block_bytes as usize)?;
//! host.run(1, disk.read(0, 1), Data::whole(&mut buffer))?;
//! println!("{:?}", buffer.bytes(0, 16));
//! host.shutdown()?;
//! # Ok(())
//! # }
//! ```
//!
//! The crate has three layers:
//!
//! * A [`Controller`] is one association with its queues. It never blocks and reads no clock: [`Controller::begin`]
//!   starts it, [`Controller::poll`] makes progress, and [`Controller::next_deadline`] returns the time of the next
//!   necessary poll.
//!
//! * A [`Host`] is a controller with a clock. The methods of a host block.
//!
//! * An [`AsyncHost`] runs a host on a thread and returns commands as futures, for any executor.
//!
//! # Commands
//!
//! A [`Namespace`] creates commands for a disk; the [`command`] module creates [`Sqe`]s of the admin queue.
//! [`Controller::submit`] takes a [`Command`] and returns a [`Ticket`]. [`Controller::take`] returns the result of a
//! ticket, [`Controller::reap`] the oldest result. Data is in a registered [`Buffer`] or inside the capsule ([`Data`]).
//! The data path does not allocate, lock or copy, except into capsules, and makes no system calls beyond those of the
//! fabric.
//!
//! Before I/O, a namespace must be opened ([`Host::open_namespace`]). The controller identifies it again after each
//! reconnection and reported change. If the NSID then refers to another disk, commands end in [`HostError::Replaced`].
//!
//! Every command ends exactly once ([`Ended`]): with a [`Response`] of any status, or with [`HostError::Lost`] after
//! its connection is closed. The command owns its buffer until then, so the program cannot change or free memory that
//! the controller may still access.
//!
//! # Errors and recovery
//!
//! A command that takes longer than [`HostOptions::command_timeout`] is aborted. If it does not end within the same
//! time again, the controller counts as lost. The controller also counts as lost if a connection breaks, a Keep Alive
//! is not answered, or the controller violates the protocol. Then all its queues are closed. [`Recovery`] configures
//! when and for how long to reconnect, with the parameters of nvme-cli. A response with "do not retry" ends the
//! attempts.
//!
//! If [`HostOptions::requeue`] is true, new commands and idempotent commands in flight ([`nvme_proto::host::requeue`])
//! wait for the reconnection. Waiting commands end in [`HostError::Lost`] if the controller does not come back or
//! `fast_io_fail_tmo` expires. If `requeue` is false, commands end as soon as their connection is closed. A target may
//! still execute a write whose connection broke; [`HostOptions::write_hold`] delays writes of the same blocks.
//!
//! [`Controller::take_event`] reports [`Event::Live`], [`Event::Lost`], [`Event::Gone`], and asynchronous events of the
//! controller ([`Notice`]).
//!
//! # Multipath
//!
//! A [`Multipath`](multipath::Multipath) is a namespace accessed through several controllers. Each command is sent on
//! the best path, and again on another path if that one fails.
//!
//! # Discovery and administration
//!
//! [`Host`] has methods for admin commands: Identify, features, log pages, Abort. [`discover`] reads the log of a
//! discovery controller, [`discover_all`] follows referrals, and a [`Discovery`] stays connected and reports changes.
//!
//! [`HostOptions::authentication`] contains the secrets for DH-HMAC-CHAP, which authenticates each queue if the target
//! requires it. With the larger groups, its arithmetic takes several milliseconds of a poll.
//!
//! Metadata and SGLs of more than one descriptor are not supported.
//!
//! [`Sqe`]: nvme_proto::wire::Sqe

mod admin;
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
mod waiting;

pub use cairn_rdma::{Device, Provider};
pub use cairn_roce::{Soft, SoftOptions};
pub use cairn_verbs::VerbsProvider;
pub use nvme_proto::wire::{self, Nqn, Sqe, Status};

pub use buffer::{Buffer, Data, Part};
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
pub use queue::{Ended, Response, Ticket, Unsent};
