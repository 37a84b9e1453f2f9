use std::io;
use std::os::fd::RawFd;

use loom::sync::{Condvar, Mutex};

/// Flag set by [`Wake::wake`] and cleared by [`Wake::clear`].
#[derive(Debug)]
pub struct Wake {
    readable: Mutex<bool>,
    changed: Condvar,
}

impl Wake {
    /// Creates a flag that is not set.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            readable: Mutex::new(false),
            changed: Condvar::new(),
        })
    }

    /// Returns -1, because the model has no descriptor.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        -1
    }

    /// Sets the flag.
    pub fn wake(&self) {
        *self.readable.lock().unwrap() = true;
        self.changed.notify_all();
    }

    /// Clears the flag.
    pub fn clear(&self) {
        *self.readable.lock().unwrap() = false;
    }

    /// Waits until the flag is set. Loom reports a wait that never ends.
    pub fn sleep(&self) {
        let mut readable = self.readable.lock().unwrap();
        while !*readable {
            readable = self.changed.wait(readable).unwrap();
        }
    }

    /// True if the flag is set.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        *self.readable.lock().unwrap()
    }
}
