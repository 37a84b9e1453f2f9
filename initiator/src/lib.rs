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
//! Three layers, for three kinds of programs:
//!
//! * A [`Controller`] is one association with its queues. It never blocks and reads no clock:
//!   [`Controller::begin`] starts it, [`Controller::poll`] takes the time and makes progress,
//!   [`Controller::next_deadline`] returns the time of the next necessary poll. Simulations,
//!   reactors and multipath build on it.
//!
//! * A [`Host`] is a controller with a clock, and derefs to it: [`Host::connect`], [`Host::run`],
//!   [`Host::wait_until`], [`Host::shutdown`] block.
//!
//! * An [`AsyncHost`] has commands as futures, for any executor; a separate thread owns the host.
//!
//! # Commands
//!
//! A [`Namespace`] creates commands for a disk, and [`command`] the [`Sqe`]s of the admin queue.
//! [`Controller::submit`] takes a [`Command`] and returns a [`Ticket`]. [`Controller::take`]
//! returns the result by ticket, [`Controller::reap`] the oldest one. Data moves directly between
//! the controller and a registered [`Buffer`], or inside the capsule; the caller chooses for each
//! command ([`Data`]). The data path does not allocate, lock or copy, except into capsules, and
//! makes no system calls beyond those of the fabric.
//!
//! A command for a disk reaches that disk or none. The namespace is opened first
//! ([`Host::open_namespace`]) and identified again whenever it may have changed. Commands for
//! another disk under its NSID end in [`HostError::Replaced`].
//!
//! Every command ends exactly once ([`Ended`]): with a [`Response`] of any status, or with
//! [`HostError::Lost`] once nothing can access its buffer. It owns the buffer until then, so a
//! dropped future or a wait that timed out cannot change data that may still be sent.
//!
//! # When things go wrong
//!
//! A command that takes longer than [`HostOptions::command_timeout`] is aborted. If it does not end
//! within the same time again, the controller counts as lost. The same applies if a connection
//! breaks, a Keep Alive is not answered or the controller violates the protocol. All queues of a
//! lost controller are closed. [`Recovery`] decides when and for how long to reconnect, with the
//! parameters of nvme-cli; "do not retry" ends it at once.
//!
//! With [`HostOptions::requeue`], commands that may be executed twice
//! ([`nvme_proto::host::requeue`]) wait for the controller and are sent again. New commands wait
//! too. All end in [`HostError::Lost`] if the controller does not come back or `fast_io_fail_tmo`
//! is over. Without it, the commands of a lost controller end as soon as its connections are
//! closed, so that another path can send them. As with any host, a write whose connection breaks
//! may still be in progress inside the target when it is sent again. Targets should finish or drop
//! the commands of an ended association before they accept a new one.
//!
//! [`Controller::take_event`] reports [`Event::Live`], [`Event::Lost`], [`Event::Gone`], and the
//! controller's own events ([`Notice`]), each of which stands for a log page to read.
//!
//! # Several paths
//!
//! A [`Multipath`](multipath::Multipath) is a namespace accessed through several controllers. It
//! takes commands like one controller, sends each on the best path, and on another one if that path
//! fails.
//!
//! # Looking around
//!
//! [`Host`] has the admin commands: Identify, namespaces, features, log pages, abort.
//! [`Host::open_namespace`] returns a [`Namespace`] with size, identifiers and commands.
//! [`discover`] lists the subsystems of a discovery controller, [`discover_all`] follows its
//! referrals, and a [`Discovery`] stays connected and reports changes.
//!
//! [`HostOptions::authentication`] has the secrets for DH-HMAC-CHAP, which runs on every queue
//! whose target requires it. Its arithmetic runs within [`Controller::poll`] and takes some
//! milliseconds with the larger groups.
//!
//! Metadata is not supported, and a command has one SGL descriptor.
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
pub use nvme_proto::host::{Cause, Notice, Recovery, State, all_notices};
pub use options::HostOptions;
pub use queue::{Ended, Response, Ticket, Unsent};
