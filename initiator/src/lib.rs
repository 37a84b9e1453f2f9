//! An NVMe over Fabrics host on RDMA, in user space.
//!
//! Three layers, for three kinds of programs:
//!
//! * A [`Controller`] is one association: the admin queue, the I/O queues, and all
//!   that a host does for them. It never blocks and looks at no clock:
//!   [`Controller::begin`] starts it, [`Controller::poll`] takes the time and
//!   moves it along, [`Controller::next_deadline`] says when to poll again though
//!   nothing comes. Simulations, reactors and multipath build on it.
//! * A [`Host`] is a controller with a clock, and derefs to it: [`Host::connect`],
//!   [`Host::run`], [`Host::wait_until`], [`Host::shutdown`] block.
//!
//! * An [`AsyncHost`] gives commands as futures, for any executor; a thread of its own
//!   owns the host.
//!
//! # Commands
//!
//! A [`Namespace`] makes the commands for a disk, and [`command`] the [`Sqe`]s of the admin queue.
//! [`Controller::submit`] sends a [`Command`]
//! and gives a [`Ticket`]; its answer is taken with [`Controller::take`] by ticket,
//! or with [`Controller::reap`] oldest first. Data moves straight between the
//! controller and a registered [`Buffer`], or inside the capsule: the caller says
//! which, command by command ([`Data`]). On this way nothing is allocated, locked or
//! copied (but what goes into capsules), and nothing enters the kernel that the
//! fabric does not need.
//!
//! A command for a disk reaches that disk or none: the namespace is opened first
//! ([`Host::open_namespace`]), is identified again whenever it may have changed, and commands for
//! another disk under its NSID end in [`HostError::Replaced`].
//!
//! Every command gets exactly one answer: a [`Response`], whatever its status, or
//! [`HostError::Lost`]. Either comes only once nothing can reach the command's
//! buffer any more; until then the buffer stays registered, even if its owner has
//! dropped it.
//!
//! # When things go wrong
//!
//! A command that takes longer than [`HostOptions::command_timeout`] is aborted; if
//! that does not help in as long again, the controller counts as lost. So it does
//! when a connection breaks, a Keep Alive is not answered or the controller breaks
//! the protocol. All queues are closed then, and [`Recovery`] says when to connect
//! again and for how long, with nvme-cli's words and meaning; "do not retry" ends
//! it at once.
//!
//! With [`HostOptions::requeue`], commands that can be carried out twice without
//! harm ([`nvme_proto::host::requeue`]) wait for the controller to come back and are
//! sent again, new ones wait with them, and all end in [`HostError::Lost`] when it
//! does not come back or `fast_io_fail_tmo` is over. Without, a lost controller
//! gives its commands back as soon as its connections are closed, for another path
//! to send. (As with any host: a write whose connection breaks may still be on its
//! way inside the target when it is sent again. Targets finish or drop what an ended
//! association has left before they let it connect anew, or should.)
//!
//! [`Controller::take_event`] reports what happened: [`Event::Live`], [`Event::Lost`],
//! [`Event::Gone`], and the controller's own events ([`Notice`]), of which each
//! stands for a log page to read.
//!
//! # Several paths
//!
//! A [`Multipath`](multipath::Multipath) is a namespace by way of several controllers:
//! it takes commands as one controller does, sends each by the best path there is, and
//! to another one if that path fails.
//!
//! # Looking around
//!
//! [`Host`] has the admin commands: Identify, namespaces, features, log pages,
//! abort. [`Host::open_namespace`] gives a [`Namespace`] with its size, its names and
//! its commands. [`discover`] asks a discovery controller which subsystems there are,
//! [`discover_all`] follows its referrals, and a [`Discovery`] stays connected and
//! reports changes.
//!
//! [`HostOptions::authentication`] has the secrets for DH-HMAC-CHAP, which runs on every queue whose
//! target requires it. Its arithmetic takes place within [`Controller::poll`]: some milliseconds
//! with the larger groups.
//!
//! There is no metadata, one SGL descriptor a command.
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

pub use buffer::{Buffer, Data};
pub use controller::Controller;
pub use discovery::{
    Discovered, Discovery, DiscoveryLog, Route, SERVICES_MAX, Service, discover, discover_all,
};
pub use error::{HostError, Loss};
pub use event::Event;
pub use futures::{Answer, AsyncHost, Part};
pub use host::Host;
pub use namespace::{Command, Namespace};
pub use nvme_auth::{Secret, SecretError, Secrets};
pub use nvme_proto::host::{Cause, Notice, Recovery, State, all_notices};
pub use options::HostOptions;
pub use queue::{Response, Ticket};
