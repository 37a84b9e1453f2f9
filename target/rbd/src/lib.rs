//! Images of a Ceph cluster (RBD), over librbd and librados, loaded at run time.
//!
//! An [`Image`] is shared by the threads. Each I/O thread has a [`Queue`], which accepts work for
//! any image. librbd's threads pass completions by a list, and wake a sleeping thread by an
//! eventfd.
//!
//! Why `unsafe` here: librbd is C code, whose threads access an operation's memory until they call
//! back. Until then the operation holds its memory ([`Memory`]) and its image.

mod cluster;
mod error;
mod image;
mod keeper;
mod open;
mod queue;
mod spec;
mod sys;

use std::time::Duration;

pub use error::OpenError;
pub use image::Image;
pub use queue::{Memory, Queue, Work};
pub use spec::{Access, Layout};

/// Checks that the Ceph libraries can be loaded.
pub fn available() -> Result<(), OpenError> {
    sys::functions().map(drop)
}

/// Waits until all unused images are closed, for at most `longest`. Returns false on timeout.
///
/// If the process ends earlier, the cluster keeps the locks until the client has been silent for
/// 30 seconds.
#[must_use]
pub fn wait_for_closes(longest: Duration) -> bool {
    keeper::wait_for_closes(longest)
}
