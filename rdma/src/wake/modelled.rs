//! An eventfd as loom sees it.

use std::os::fd::RawFd;

use loom::sync::{Condvar, Mutex};

use crate::error::FabricError;

/// Readable once [`Wake::wake`] was called, until [`Wake::clear`].
#[derive(Debug)]
pub struct Wake {
    readable: Mutex<bool>,
    changed: Condvar,
}

impl Wake {
    /// One that has not been woken yet.
    ///
    /// # Errors
    /// None: there are no descriptors.
    pub fn new() -> Result<Self, FabricError> {
        Ok(Self {
            readable: Mutex::new(false),
            changed: Condvar::new(),
        })
    }

    /// No descriptor: see [`Self::sleep`].
    #[must_use]
    pub fn fd(&self) -> RawFd {
        -1
    }

    /// Makes it readable.
    pub fn wake(&self) {
        *self.readable.lock().unwrap() = true;
        self.changed.notify_all();
    }

    /// Makes it quiet again.
    pub fn clear(&self) {
        *self.readable.lock().unwrap() = false;
    }

    /// Waits until it is readable. If that never comes, loom says so.
    pub fn sleep(&self) {
        let mut readable = self.readable.lock().unwrap();
        while !*readable {
            readable = self.changed.wait(readable).unwrap();
        }
    }

    /// Whether a wait would be over at once.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        *self.readable.lock().unwrap()
    }
}
