//! Cancels entries of a submission queue. The io-uring crate has no function for this.
//!
//! Why `unsafe` here: the entries are memory shared with the kernel.

use std::io;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

use io_uring::{IoUring, cqueue, squeue};

/// `IORING_OFF_SQES` (`linux/io_uring.h`).
const ENTRIES_AT: libc::off_t = 0x1000_0000;

/// Offset of `user_data` in `struct io_uring_sqe`.
const TAG_AT: usize = 32;

pub(super) struct QueueEntries {
    memory: *mut u8,
    count: u32,
    bytes: usize,
}

impl QueueEntries {
    pub(super) fn map<S, C>(uring: &IoUring<S, C>) -> io::Result<Self>
    where
        S: squeue::EntryMarker,
        C: cqueue::EntryMarker,
    {
        let count = uring.params().sq_entries();
        let bytes = size_of::<S>();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let memory = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
            libc::mmap(
                null_mut(),
                count as usize * bytes,
                protection,
                flags,
                uring.as_raw_fd(),
                ENTRIES_AT,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            memory: memory.cast(),
            count,
            bytes,
        })
    }

    /// Turns an entry that the kernel has not read into a no-op (`IORING_OP_NOP`, 0).
    pub(super) fn blank(&self, place: u32, data: u64) {
        let at = (place & (self.count - 1)) as usize * self.bytes;
        // SAFETY: the number of entries is a power of two, so this one lies in the mapping; the
        // kernel reads it only during this thread's system calls.
        unsafe {
            let entry = self.memory.add(at);
            entry.write_bytes(0, self.bytes);
            entry.add(TAG_AT).cast::<u64>().write(data);
        }
    }
}

impl Drop for QueueEntries {
    fn drop(&mut self) {
        // SAFETY: no other reference to this mapping exists.
        unsafe { libc::munmap(self.memory.cast(), self.count as usize * self.bytes) };
    }
}
