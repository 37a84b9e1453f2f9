//! An eventfd: how one thread makes another's wait return.
//!
//! Why `unsafe` here: eventfd has no safe wrapper in the crates we use.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

/// Readable once [`Wake::wake`] was called, until [`Wake::clear`].
#[derive(Debug)]
pub(super) struct Wake {
    file: File,
}

impl Wake {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just made belongs to nobody else.
        let file = unsafe { File::from_raw_fd(fd) };
        Ok(Self { file })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    pub(super) fn wake(&self) {
        // Fails only when the counter is at its maximum: readable all the same.
        let _ = (&self.file).write(&1_u64.to_ne_bytes());
    }

    pub(super) fn clear(&self) {
        // Fails only when nobody woke us.
        let _ = (&self.file).read(&mut [0; 8]);
    }
}

/// Sleeps until one of two descriptors is readable, or for so long. `None`: for
/// as long as it takes.
pub(super) fn sleep(fds: [RawFd; 2], timeout: Option<std::time::Duration>) {
    let mut polled = fds.map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    // Rounded up, or the last millisecond would be spent spinning.
    let millis = timeout.map_or(-1, |t| i32::try_from(t.as_millis() + 1).unwrap_or(i32::MAX));
    // SAFETY: two live structures, and their number. A signal ends the sleep
    // early, which callers expect.
    unsafe { libc::poll(polled.as_mut_ptr(), 2, millis) };
}
