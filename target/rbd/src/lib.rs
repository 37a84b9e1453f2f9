//! Images of a Ceph cluster (RBD), over librbd and librados, loaded at run time.
//!
//! Threads share an [`Image`]. Each I/O thread has a [`Queue`] for work on any image. librbd's
//! threads put completions into a list, and wake a sleeping I/O thread by an eventfd.
//!
//! Why `unsafe` here: librbd is C code, whose threads access an operation's memory until they call
//! back. Until then, the operation keeps its memory ([`Memory`]) and its image alive.

// Public items are for `cairn-target`; names and types document them.
#![allow(missing_docs)]

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

pub fn available() -> Result<(), OpenError> {
    sys::functions().map(drop)
}

/// Waits at most `longest` until all unused images are closed. Returns false on timeout.
///
/// If the process ends earlier, the cluster keeps the locks until the client has been silent for 30
/// seconds.
#[must_use]
pub fn wait_for_closes(longest: Duration) -> bool {
    let are_closed = keeper::wait_for_closes(longest);
    sys::skip_destructors();
    are_closed
}
