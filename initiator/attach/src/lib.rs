//! Makes a namespace a disk of this machine, served by a user-space process.
//!
//! A [`Disk`] executes [`Request`]s by commands on one or several paths. A [`Front`] receives
//! requests: [`nbd::Nbd`] from clients of the NBD protocol, among them Linux, [`ublk::Queue`] from
//! Linux's ublk driver, and [`vhost_user::VhostUser`] from virtual machines. [`run`] connects both
//! on the calling thread.

mod disk;
mod error;
mod front;
pub mod nbd;
mod request;
pub mod ublk;
pub mod vhost_user;

pub use disk::Disk;
pub use error::Error;
pub use front::{Front, Watch, run};
pub use request::{Done, Errno, Limits, Operation, Request};
