//! Asynchronous writes by Linux AIO (io_submit(2)). AIO locks a file of FUSE or NFS only during
//! submission. With io_uring, a kernel thread would wait for the write and keep the file locked.
//!
//! Why `unsafe` here: the AIO system calls have no safe wrapper, and take raw memory.

use std::io;
use std::mem::zeroed;
use std::os::fd::RawFd;
use std::ptr::null;
use std::sync::atomic::{AtomicU32, Ordering};

use super::apart::Write;
use crate::timely::{self, Look};

/// Maximum pending writes; more fail with EAGAIN.
const UNDER_WAY_MAX: usize = 1024;

const BATCH: usize = 32;

/// `IOCB_CMD_PWRITE` and `IOCB_FLAG_RESFD` (`linux/aio_abi.h`).
const WRITE: u16 = 1;
const WITH_EVENTFD: u32 = 1;

/// `struct io_event` (`linux/aio_abi.h`).
#[repr(C)]
#[derive(Clone, Copy)]
struct Event {
    tag: u64,
    block: u64,
    result: i64,
    second: i64,
}

#[derive(Debug)]
pub(super) struct Aio {
    context: u64,
    wake: RawFd,
    under_way: AtomicU32,
}

impl Aio {
    /// Creates a context. The eventfd `wake` must outlive it.
    pub(super) fn new(wake: RawFd) -> io::Result<Self> {
        let mut context = 0_u64;
        // SAFETY: the kernel writes the context ID to `context`.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, UNDER_WAY_MAX, &raw mut context) };
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            context,
            wake,
            under_way: AtomicU32::new(0),
        })
    }

    /// Submits a write. [`Self::ended`] reports the completion. Returns `None` without a submission
    /// if the clock reading `look` is too old.
    pub(super) fn write(
        &self,
        look: Look,
        tag: u64,
        file: RawFd,
        Write {
            offset,
            memory,
            durable,
        }: &Write,
    ) -> Option<Result<(), i32>> {
        // SAFETY: zeroes are a valid value of this structure of numbers.
        let mut block: libc::iocb = unsafe { zeroed() };
        block.aio_data = tag;
        block.aio_lio_opcode = WRITE;
        block.aio_fildes = file as u32;
        block.aio_buf = (memory.mapping.addr() as usize + memory.at) as u64;
        block.aio_nbytes = memory.length as u64;
        block.aio_offset = *offset as i64;
        block.aio_rw_flags = if *durable { libc::RWF_DSYNC } else { 0 };
        block.aio_flags = WITH_EVENTFD;
        block.aio_resfd = self.wake as u32;
        let blocks = [&raw mut block];
        self.under_way.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the kernel copies the block. The ring has checked that the bytes lie in the
        // mapping, which `memory` keeps during the call; then the kernel holds the pages until the
        // write's end.
        let taken = unsafe {
            let number = libc::SYS_io_submit as usize;
            let list = blocks.as_ptr() as usize;
            timely::call(look, &[number, self.context as usize, 1, list, 0, 0, 0])
        };
        let refused = match taken {
            Some(Ok(1)) => return Some(Ok(())),
            None => None,
            Some(Ok(_)) => Some(Err(libc::EAGAIN)),
            Some(Err(error)) => Some(Err(error.raw_os_error().unwrap_or(libc::EIO))),
        };
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        refused
    }

    pub(super) fn ended(&self, mut each: impl FnMut(u64, Result<u32, i32>)) {
        // SAFETY: zeroes are a valid value of these structures of numbers.
        let mut events: [Event; BATCH] = unsafe { zeroed() };
        loop {
            // SAFETY: the array has room for the events; with a minimum of 0 the call does not
            // wait.
            let count = unsafe {
                let none = null::<libc::timespec>();
                let (context, to) = (self.context, events.as_mut_ptr());
                libc::syscall(libc::SYS_io_getevents, context, 0, BATCH, to, none)
            };
            let count = usize::try_from(count).unwrap_or(0);
            self.under_way.fetch_sub(count as u32, Ordering::Relaxed);
            for event in &events[..count] {
                let result = u32::try_from(event.result);
                each(event.tag, result.map_err(|_| -event.result as i32));
            }
            if count < BATCH {
                return;
            }
        }
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // `io_destroy` would block while a write is pending. In this case, the kernel destroys the
        // context when the process ends.
        if self.under_way.load(Ordering::Relaxed) == 0 {
            // SAFETY: the only argument is a number.
            unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;
    use std::time::Duration;

    use cairn_base::Mapping;
    use cairn_base::wake::{Wake, wait_readable};

    use super::*;
    use crate::simulated_disk::Memory;

    #[test]
    fn a_write_ends_with_its_bytes_or_an_errno() {
        let wake = Wake::new().unwrap();
        let aio = Aio::new(wake.fd()).unwrap();
        let file = tempfile::tempfile().unwrap();
        let mapping = Arc::new(Mapping::anonymous(4096).unwrap());
        mapping.write(512, &[7; 100]);
        let sevens = |file: &File| {
            let mut bytes = [0; 100];
            file.read_exact_at(&mut bytes, 1000).unwrap();
            bytes == [7; 100]
        };
        let write = |tag, fd, offset, durable| {
            let write = Write {
                offset,
                memory: Memory {
                    mapping: Arc::clone(&mapping),
                    at: 512,
                    length: 100,
                },
                durable,
            };
            loop {
                if let Some(begun) = aio.write(Look::begin(), tag, fd, &write) {
                    break begun;
                }
            }
        };
        write(1, file.as_raw_fd(), 1000, true).unwrap();
        let mut ends = Vec::new();
        while ends.is_empty() {
            let readable = wait_readable([wake.fd()], Some(Duration::from_secs(30)));
            assert!(readable[0], "it does not end");
            wake.clear();
            aio.ended(|tag, result| ends.push((tag, result)));
        }
        assert_eq!(ends, [(1, Ok(100))]);
        assert!(sevens(&file));
        assert_eq!(write(2, -1, 0, false), Err(libc::EBADF));
    }
}
