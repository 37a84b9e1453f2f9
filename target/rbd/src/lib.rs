//! Images of a Ceph cluster (RBD), over librbd and librados.
//!
//! Both libraries are loaded at run time. An [`Image`] is shared by all threads. Each I/O thread has a [`Queue`],
//! which accepts work for any image. Threads of librbd pass completions to the queue by a list, and by an eventfd
//! while its thread sleeps.
//!
//! The library's cache is off: an acknowledged write is on all replicas.
//!
//! Why `unsafe` here: librbd is C code, and its threads access an operation's memory until they call back. Each
//! operation holds its memory ([`Memory`]) and its image until then.

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

/// Checks that the Ceph libraries can be loaded.
///
/// # Errors
/// A library is missing; the error names the package that contains it.
pub fn available() -> Result<(), OpenError> {
    sys::functions().map(drop)
}

/// Waits until all unused images are closed, for at most `longest`. Returns false on timeout.
///
/// If the process ends earlier, the lock of an open image stays until the cluster has missed its client for 30 seconds.
#[must_use]
pub fn wait_for_closes(longest: Duration) -> bool {
    keeper::wait_for_closes(longest)
}
