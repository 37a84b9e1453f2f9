//! Images of a Ceph cluster (RBD), over librbd and librados.
//!
//! Both libraries are opened at run time, as libibverbs is: nothing of Ceph is needed to build.
//! An [`Image`] is opened on a thread that may block, and is shared by all threads. Each thread
//! that does I/O has a [`Queue`]: it takes work for any image, and what ends on a thread of
//! librbd comes back to it by a list, and by an eventfd while it sleeps.
//!
//! The library's cache is off: what a write acknowledges, all replicas have.
//!
//! Why `unsafe` here: librbd is C. It reads and writes the memory of an operation behind the
//! compiler's back, on its own threads, until it calls back. So each operation holds its
//! memory ([`Memory`]) and its image until then, whatever becomes of the queue that asked.

mod cluster;
mod error;
mod image;
mod keeper;
mod open;
mod queue;
mod spec;
mod sys;

use std::time::Duration;

pub use cluster::is_reserved;
pub use error::OpenError;
pub use image::Image;
pub use queue::{Memory, Queue, Work};
pub use spec::{Access, Layout, Spec};

/// Whether the libraries are there.
///
/// # Errors
/// They are not; says which package brings them.
pub fn available() -> Result<(), OpenError> {
    sys::functions().map(drop)
}

/// Waits until each image that nothing uses any more is closed, for at most so long. A process that ends
/// before leaves the image's lock in the cluster until that has not seen its client for 30 seconds.
///
/// Returns whether all are closed.
#[must_use]
pub fn wait_for_closes(longest: Duration) -> bool {
    keeper::wait_for_closes(longest)
}
