//! vhost-user-blk (Virtio 1.2, 5.2, and QEMU's docs/interop/vhost-user.rst): a disk of a guest.

mod chain;
mod config;
mod device;
mod inflight;
mod memory;
mod queue;
mod ring;
mod server;

pub use config::Serial;
pub use queue::Tag;
pub use server::VhostUser;
