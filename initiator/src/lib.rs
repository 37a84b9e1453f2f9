//! An NVMe over Fabrics host on RDMA, in user space.
//!
//! [`Host::connect`] makes one controller association: the admin queue, then
//! as many I/O queues as asked for. Commands are [`Sqe`]s that [`command`]
//! makes; [`Host::submit`] sends one and gives a [`Ticket`], [`Host::poll`]
//! moves things along, [`Host::take`] gives the answer to a ticket. Where
//! waiting is fine, [`Host::run`] does all three. Data moves straight between
//! the controller and a registered [`Buffer`], or inside the command capsule:
//! the caller says which, command by command ([`Data`]).
//!
//! A `Host` belongs to one thread, blocks only in the methods that say so, and
//! copies no data but what goes into capsules. It is the tool that tests and
//! benchmarks of targets need; what it does not do is recover: after a queue is
//! lost its commands end in [`HostError::Lost`], and reconnecting is the
//! caller's affair. There is no multipath, no authentication, no metadata, one
//! SGL descriptor a command.
//!
//! [`discover`] asks a discovery controller which subsystems there are.
//!
//! [`Sqe`]: nvme_proto::wire::Sqe

mod admin;
pub mod bench;
mod bring_up;
mod buffer;
pub mod command;
mod discovery;
mod duties;
mod error;
mod host;
mod object;
mod queue;

pub use buffer::{Buffer, Data};
pub use discovery::{DiscoveryLog, discover};
pub use error::{HostError, Loss};
pub use host::{Host, HostOptions, Response};
pub use queue::Ticket;
